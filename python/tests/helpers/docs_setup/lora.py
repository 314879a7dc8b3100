"""Eight clips, a small Whisper with its processor, a Trainer's folder with adapters for it."""

from asrconfig_go import recipe
from asrconfig_go.plan import add_lora

name = "tiny-whisper"
speech = recipe.load_speech("demo", progress=False)
processor = recipe.build_processor(speech.train["text"], name)
model = recipe.load_model(name, processor)
dataset = recipe.prepare(speech, processor, model=model).train.select(range(8))
add_lora(recipe.load_model(name, processor), 4).save_pretrained("asrconfig-output")
