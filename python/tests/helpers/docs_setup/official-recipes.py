"""Eight clips, and a small model with its collator."""

from transformers import Trainer

from asrconfig_go import recipe

speech = recipe.load_speech("demo", progress=False)
processor = recipe.build_processor(speech.train["text"], "tiny-wav2vec2")
model = recipe.load_model("tiny-wav2vec2", processor)
dataset = recipe.prepare(speech, processor).train.select(range(8))
collator = recipe.make_collator(processor, model)
