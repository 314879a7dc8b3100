"""The loop of ``trace_training`` against the Trainer's own, run inside a recorder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")

import trace_fixtures as models
from asrconfig_go.trace import MemoryRecorder, Trace, speech_batches, trace_training

POINT = (2, 16_001, 7)
SCALARS = 64  # bytes: losses are divided and checked by a few more numbers in the Trainer


class Marks(transformers.TrainerCallback):  # type: ignore[misc, name-defined]
    """Ends a segment after each optimizer step."""

    def __init__(self, recorder: MemoryRecorder) -> None:
        self.recorder = recorder

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        self.recorder.step()


def the_trainers(folder: Path, **settings: Any) -> Trace:
    with MemoryRecorder() as recorder:
        model = models.wav2vec2()
        batch = speech_batches(model).batch(*POINT)
        arguments = transformers.TrainingArguments(
            str(folder),
            per_device_train_batch_size=POINT[0],
            max_steps=3,
            use_cpu=True,
            report_to="none",
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
            remove_unused_columns=False,
            **settings,
        )
        trainer = transformers.Trainer(
            model,
            arguments,
            train_dataset=[{"index": i} for i in range(64)],
            data_collator=lambda _: {name: tensor.clone() for name, tensor in batch.items()},
            callbacks=[Marks(recorder)],
        )
        trainer.train()
    return recorder.trace()


def peak_of_each_step(trace: Trace) -> list[int]:
    """Bytes at the highest moment of each optimizer step with its micro-batches."""
    sizes: list[int] = []
    peaks: list[int] = []
    now = 0
    for segment in trace.segments:
        if segment["kind"] in ("iteration", "micro"):
            peaks.append(now)
        for event in segment["events"]:
            if event >= 0:
                sizes.append(event)
                now += event
            else:
                now -= sizes[-1 - event]
            if peaks:
                peaks[-1] = max(peaks[-1], now)
    return peaks


@pytest.mark.parametrize("accumulation", [1, 2])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_peak_of_every_step_is_the_trainers(precision: str, accumulation: int, tmp_path: Path) -> None:
    settings = {"bf16": precision == "bf16", "gradient_accumulation_steps": accumulation, "optim": "adamw_torch_fused"}
    theirs = peak_of_each_step(the_trainers(tmp_path, **settings))
    ours = peak_of_each_step(
        trace_training(
            models.wav2vec2,
            points=[POINT],
            precision=precision,  # type: ignore[arg-type]
            steps=3,
            accumulation=accumulation,
            evaluation=False,
        )
    )
    assert len(theirs) == len(ours) == 3
    assert theirs[0] < theirs[1]  # the second step starts with the optimizer's state
    for one, other in zip(theirs, ours, strict=True):
        assert abs(one - other) <= SCALARS
