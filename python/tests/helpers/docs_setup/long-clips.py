"""A plan, a recording of tones with its text, and the model and processor of an aligner that hears them."""

from tone_speech import RATE, aligner, spoken
from training_fixtures import make_plan

config = make_plan()
WORDS = ["ab", "cde", "fg", "hij", "kl", "mn"] * 8
audio, _ = spoken(WORDS)
dataset = [{"audio": {"array": audio, "sampling_rate": RATE}, "text": " ".join(WORDS)}]
model, processor = aligner().model, aligner().processor
durations = [len(audio) / RATE]
