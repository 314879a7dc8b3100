"""Eight clips with their texts, and a small Whisper with its processor."""

from asrconfig_go import recipe

speech = recipe.load_speech("demo", progress=False)
processor = recipe.build_processor(speech.train["text"], "tiny-whisper")
model = recipe.load_model("tiny-whisper", processor)
dataset = recipe.prepare(speech, processor, model=model).train.select(range(8))
