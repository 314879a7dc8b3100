"""Shapes that no formula covers are traced when they are asked about."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from asrconfig_go.errors import UnsupportedError
from asrconfig_go.predict import MemoryModel
from asrconfig_go.predict.recordings import Recording

CHUNK = 50  # values
PER_SECOND = 100  # values
LIMIT = 48 * 2**20  # bytes that the allocator may reserve


class Chunked(torch.nn.Module):  # type: ignore[misc]
    """An encoder that works on one chunk after the other, and a joint network of all chunks and all labels."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.predictor = torch.nn.Linear(CHUNK, 256), torch.nn.Embedding(30, 256)
        self.joint = torch.nn.Linear(256, 500)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        chunks = torch.stack([self.encoder(chunk).relu() for chunk in x.split(CHUNK, 1)], 1)
        logits = self.joint(chunks[:, :, None] + self.predictor(labels)[:, None])
        return {"loss": logits.float().log_softmax(-1).square().mean()}


class ByClip(Chunked):
    """Works on one clip after the other, so that the batch decides which operations there are."""

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        losses = [super(ByClip, self).forward(x[i : i + 1], labels[i : i + 1])["loss"] for i in range(len(x))]
        return {"loss": torch.stack(losses).mean()}


class Plain(Chunked):
    """All chunks at once."""

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.joint(self.predictor(labels))
        return {"loss": logits.float().log_softmax(-1).square().mean() + self.encoder(x[:, :CHUNK]).mean()}


def padded(batch: int, length: int, labels: int) -> dict[str, Any]:
    """Clips padded to whole chunks, as their collator makes them."""
    rounded = -(-length // CHUNK) * CHUNK
    return {"x": torch.zeros(batch, rounded), "labels": torch.ones(batch, labels, dtype=torch.long)}


def unpadded(batch: int, length: int, labels: int) -> dict[str, Any]:
    return {"x": torch.zeros(batch, length), "labels": torch.ones(batch, labels, dtype=torch.long)}


def traced(model: torch.nn.Module, **options: Any) -> MemoryModel:
    options = dict[str, Any](precision="bf16", accumulation=3, gpu="T4", progress=False, cache=False) | options
    batches = unpadded if isinstance(model, Plain) else padded
    return MemoryModel.trace(model, batches, length_per_second=PER_SECOND, **options)


def fresh(model: torch.nn.Module, batch: int, seconds: float, labels: int) -> MemoryModel:
    """A trace of one shape, by which the others are judged."""
    return traced(model, points=[(batch, round(seconds * PER_SECOND), labels)])


def reserved(model: torch.nn.Module, *shape: Any) -> int:
    return fresh(model, *shape).estimate(*shape, timeline=0).peak_reserved


@pytest.fixture
def recordings(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The points of each recording that is made."""
    made: list[Any] = []
    trace: Callable[..., Any] = Recording.trace

    def noting(self: Recording, *args: Any) -> Any:
        made.append(self.points)
        return trace(self, *args)

    monkeypatch.setattr(Recording, "trace", noting)
    return made


@pytest.fixture(scope="module")
def memories() -> dict[str, MemoryModel]:
    return {"chunks": traced(Chunked()), "clips": traced(ByClip())}


@pytest.mark.parametrize("shape", [(2, 7.3, 41), (1, 9.5, 33), (7, 3.33, 200)])
@pytest.mark.parametrize("kind", ["chunks", "clips"])
def test_an_asked_shape_is_answered_as_a_trace_of_that_shape(
    kind: str, shape: tuple[int, float, int], memories: dict[str, MemoryModel]
) -> None:
    memory = memories[kind]
    assert not memory.determines(*shape)
    truth = fresh({"chunks": Chunked, "clips": ByClip}[kind](), *shape)
    answer, expected = memory.estimate(*shape), truth.estimate(*shape)
    assert (answer.peak_allocated, answer.peak_reserved) == (expected.peak_allocated, expected.peak_reserved)
    assert answer.approximate == 0
    assert not any("without an exact formula" in note for note in answer.notes)
    assert memory.evaluation(*shape).peak_reserved == truth.evaluation(*shape).peak_reserved


def test_shapes_that_a_formula_covers_are_not_traced(recordings: list[Any]) -> None:
    memory = traced(Plain())
    for batch, seconds, labels in ((2, 7.3, 41), (1, 12.0, 60), (30, 12.0, 60)):
        assert memory.determines(batch, seconds, labels)
        memory.estimate(batch, seconds, labels)
    assert memory.largest_batch(12.0, 2**30, 60) > 100
    assert recordings == [None]


def test_a_batch_answers_for_others_where_memory_follows_from_it(recordings: list[Any]) -> None:
    memory = traced(Chunked())
    batch = memory.largest_batch(10.0, LIMIT, 50)
    length = 10 * PER_SECOND
    assert recordings == [None, ((2, length, 50), (3, length, 50), (5, length, 50))]
    assert reserved(Chunked(), batch, 10.0, 50) <= LIMIT < reserved(Chunked(), batch + 1, 10.0, 50)


@pytest.mark.slow
def test_the_largest_batch_is_found_where_each_has_to_be_traced(recordings: list[Any]) -> None:
    batch = traced(ByClip()).largest_batch(10.0, LIMIT, 50)
    assert len(recordings) <= 8
    assert reserved(ByClip(), batch, 10.0, 50) <= LIMIT < reserved(ByClip(), batch + 1, 10.0, 50)


def test_a_model_of_other_operations_at_each_shape_is_traced_at_few(recordings: list[Any]) -> None:
    shapes = {(point["batch"], point["length"]) for point in traced(ByClip()).points}
    assert len(shapes) < len({(point["batch"], point["length"]) for point in traced(Plain()).points})


def test_shapes_are_kept_between_sessions(
    recordings: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASRCONFIG_CACHE", str(tmp_path))
    first = traced(Chunked(), cache=True).estimate(4, 10.0, 50).peak_reserved
    made = len(recordings)
    assert traced(Chunked(), cache=True).estimate(4, 10.0, 50).peak_reserved == first
    assert len(recordings) == made


def test_nothing_is_traced_where_only_formulas_may_answer(recordings: list[Any]) -> None:
    memory = traced(ByClip())
    with memory.by_formulas(), pytest.raises(UnsupportedError, match="does not determine"):
        memory.estimate(4, 10.0, 50)
    assert recordings == [None]
    assert memory.estimate(4, 10.0, 50).fits
