"""A few rows of ``benchmarks/model_zoo``: batches of their collators train them, and plans trace those batches."""

from __future__ import annotations

import importlib
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from asrconfig_go import create_optimal_config

ZOO = Path(__file__).resolve().parents[3] / "benchmarks" / "model_zoo"
NEEDED = {
    "wav2vec2, layer norm": "Wav2Vec2ForCTC",
    "Qwen3-ASR": "Qwen3ASRForConditionalGeneration",
    "Voxtral Realtime": "VoxtralRealtimeForConditionalGeneration",
    "Granite Speech": "GraniteSpeechForConditionalGeneration",
    "Parakeet TDT": "ParakeetForTDT",
    "SpeechT5, text to speech": "SpeechT5ForTextToSpeech",
}
SLOW = {"Granite Speech", "Parakeet TDT", "Qwen3-ASR", "Voxtral Realtime"}


@pytest.fixture(scope="module")
def material() -> Any:
    if not all(hasattr(transformers, name) for name in NEEDED.values()):
        pytest.skip("the rows are of a newer transformers")
    sys.path.insert(0, str(ZOO))
    assert len(importlib.import_module("kinds").ROWS) >= 60
    return importlib.import_module("material")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in NEEDED]
)
def test_a_row_trains_on_its_collators_batch_and_is_planned_by_a_trace(material: Any, name: str) -> None:
    subject = material.ROWS[name].build(material.TINY)
    clips = material.rows(longest=1.2)  # losses of transducers loop over frames
    outputs = subject.model(**subject.collate([clips[0], clips[1]]))
    loss = outputs["loss"]
    loss.backward()
    assert bool(torch.isfinite(loss))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # NotTracedWarning, too
        warnings.filterwarnings("ignore", category=FutureWarning)
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        config, _ = create_optimal_config(
            clips, subject.model, collator=subject.collate, gpu="T4", target_batch_size=8, num_train_epochs=1,
            loader_rate=1000.0, verbose=False,
        )  # fmt: skip
    assert not [line for line in config.warnings if "unknown" in line or "made up" in line]
    assert {part.name for part in config.memory_parts} >= {"activations", "parameters"}, "parts of a traced peak"
