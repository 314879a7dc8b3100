"""Micro-batches that are written down from an earlier window are what running them gives."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
from torch import nn

from asrconfig_go.recipe.model_building import small_model
from asrconfig_go.trace import trace_training
from asrconfig_go.trace._windows import Windows
from trace_fixtures import as_recorded, whisper


class Unsteady(nn.Module):  # type: ignore[misc]
    """Every third forward pass has one layer more."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.passes = nn.Linear(8, 8), 0

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        self.passes += 1
        for _ in range(2 if self.passes % 3 == 0 else 1):
            x = self.layer(x).relu()
        return {"loss": x.sum()}


class Keeping(nn.Module):  # type: ignore[misc]
    """Keeps what its last forward pass made until the one after the next."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.kept = nn.Linear(8, 8), [None, None]

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        x = self.layer(x)
        self.kept = [self.kept[1], x.detach()]
        return {"loss": x.sum()}


def squares(batch: int, length: int, labels: int) -> dict[str, torch.Tensor]:
    return {"x": torch.zeros(batch, length, 8)}


OWN = [(2, 301, 0), (3, 407, 0), (5, 503, 0), (1, 301, 0), (1, 503, 0)]


CASES: list[tuple[Any, dict[str, Any], int]] = [
    (small_model(tokens=12, seed=0), {}, 5),
    (small_model(tokens=12, seed=0), {"precision": "fp16", "gradient_checkpointing": True, "optimizer": "sgd"}, 5),
    (whisper(max_source_positions=1500), {"precision": "bf16"}, 5),
    (Unsteady(), {"batch_fn": squares, "points": OWN}, 0),
    (Keeping(), {"batch_fn": squares, "points": OWN}, 0),
]


@pytest.mark.parametrize(("model", "options", "fewest"), CASES)
def test_written_down_is_as_run(
    model: Any, options: dict[str, Any], fewest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    windows: list[Any] = []
    like = Windows.like

    def noted(self: Windows, first: Any) -> Any:
        windows.append(like(self, first))
        return windows[-1]

    monkeypatch.setattr(Windows, "like", noted)
    short = trace_training(model, accumulation=3, **options)
    monkeypatch.setattr(Windows, "like", lambda self, first: None)
    full = trace_training(model, accumulation=3, **options)
    assert sum(window is not None for window in windows) >= fewest
    assert as_recorded(short) == as_recorded(full)
    assert (short.ops, short.modules, short.calls) == (full.ops, full.modules, full.calls)
