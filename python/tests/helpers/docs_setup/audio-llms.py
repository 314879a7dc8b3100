"""Eight clips with their texts, and a small audio LLM with its processor."""

from asrconfig_go import recipe

speech = recipe.load_speech("demo", progress=False)
processor = recipe.build_processor(speech.train["text"], "tiny-qwen3-asr")
model = recipe.load_model("tiny-qwen3-asr", processor)
dataset = recipe.prepare(speech, processor, model=model).train.select(range(8))
rows = [dataset[0], dataset[1]]
