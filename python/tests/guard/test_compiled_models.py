"""Compiled models: the guard adds no graphs while nothing fails, and one of halved batches after an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters
from transformers import Trainer, TrainingArguments

from asrconfig_go.guard import attach
from tiny_training import OUT_OF_MEMORY


class Line(torch.nn.Module):  # type: ignore[misc]
    """A model without breaks in its graph."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = torch.nn.Linear(8, 16), torch.nn.Linear(16, 1)

    def forward(self, x: Any, labels: Any = None) -> dict[str, Any]:
        logits = self.last(torch.tanh(self.first(x)))[:, 0]
        return {"loss": torch.nn.functional.mse_loss(logits, labels), "logits": logits}


def graphs(tmp_path: Path, guarded: bool, fails: bool = False) -> int:
    """How many graphs a training compiles."""
    torch._dynamo.reset()
    counters.clear()
    rows = [{"x": torch.randn(8), "labels": torch.randn(())} for _ in range(32)]
    args = TrainingArguments(
        str(tmp_path), torch_compile=True, torch_compile_backend="eager", use_cpu=True, report_to="none",
        per_device_train_batch_size=8, max_steps=4, logging_strategy="no", save_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    trainer = Trainer(Line(), args, train_dataset=rows)
    backward, batches = trainer.accelerator.backward, iter(range(1000))

    def failing(loss: Any, **kwargs: Any) -> None:
        if fails and next(batches) == 2:
            raise torch.cuda.OutOfMemoryError(OUT_OF_MEMORY)
        backward(loss, **kwargs)

    trainer.accelerator.backward = failing
    guard = attach(trainer) if guarded else None
    trainer.train()
    assert (len(guard.events) if guard else 0) == int(fails)
    return int(counters["stats"]["unique_graphs"])


def test_no_graph_is_added_while_nothing_fails(tmp_path: Path) -> None:
    plain = graphs(tmp_path, guarded=False)
    assert plain > 0
    assert graphs(tmp_path, guarded=True) == plain


def test_an_error_adds_the_graph_of_smaller_batches(tmp_path: Path) -> None:
    if not hasattr(torch.compiler, "set_stance"):
        pytest.skip("measuring what the loss divides by compiles before PyTorch 2.6")
    assert graphs(tmp_path, guarded=True, fails=True) == graphs(tmp_path, guarded=False) + 1
