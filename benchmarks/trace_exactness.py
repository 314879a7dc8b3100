"""Answers computed from a few traced shapes, against the trace of each asked shape itself.

Thirty random (batch, seconds, labels) per model and setting; prints the worst difference in peak allocated and peak
reserved memory. The aim is 0.1 %.
"""

from __future__ import annotations

import random
import sys
import tempfile
from pathlib import Path
from typing import Any

import asrconfig_go as ac
from asrconfig_go.predict import MemoryEstimate
from asrconfig_go.trace import MemoryRecorder, SpeechBatches, speech_batches, trace_training
from asrconfig_go.trace.model import Model

CASES: list[tuple[str, dict[str, Any]]] = [
    ("facebook/wav2vec2-base", {"precision": "fp32"}),
    ("facebook/wav2vec2-xls-r-300m", {"precision": "fp16"}),
    ("facebook/wav2vec2-xls-r-300m", {"precision": "fp16", "gradient_checkpointing": True}),
    ("microsoft/wavlm-base-plus", {"precision": "bf16"}),
    ("facebook/w2v-bert-2.0", {"precision": "bf16", "gradient_checkpointing": True}),
    ("openai/whisper-small", {"precision": "fp16", "optimizer": "adafactor"}),
]
ASKED = 30
GPU = "A100-80GB"


def speech_of(name: str) -> SpeechBatches:
    """How to feed a known model."""
    with MemoryRecorder():
        return speech_batches(Model.of(name).build().config)


def direct(name: str, settings: dict[str, Any], point: tuple[int, int, int], seconds: float) -> MemoryEstimate:
    """The estimate from a trace of exactly this shape."""
    trace = trace_training(Model.of(name).build, points=[point], steps=3, evaluation=False, **settings)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "one.trace"
        trace.save(file)
        with ac.MemoryModel.load(file, gpu=GPU) as model:
            return model.estimate(point[0], seconds, point[2], timeline=0)


def main() -> int:
    """Print one line per case; fails when a case misses the aim."""
    draw = random.Random(1)
    missed = 0
    for name, settings in CASES:
        speech = speech_of(name)
        model = ac.MemoryModel.trace(name, **settings, gpu=GPU, progress=False, cache=False)
        worst = {"peak_allocated": 0.0, "peak_reserved": 0.0}
        for _ in range(ASKED):
            seconds = draw.uniform(1.0, 30.0)
            point = (draw.choice([1, *range(2, 33)]), speech.length(seconds), draw.randint(1, speech.labels(seconds)))
            answer = model.estimate(point[0], seconds, point[2], timeline=0)
            truth = direct(name, settings, point, seconds)
            for key in worst:
                worst[key] = max(worst[key], abs(getattr(answer, key) / getattr(truth, key) - 1))
        missed += max(worst.values()) > 1e-3
        print(
            f"{name:30} {settings}  {ASKED} shapes: worst difference allocated {worst['peak_allocated']:.3%}, "
            f"reserved {worst['peak_reserved']:.3%}, aim 0.1 %",
            flush=True,
        )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
