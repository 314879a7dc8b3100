"""What tells the batches of one function from those of another."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from asrconfig_go.trace.made_up_batches import batch_identity

POINTS = [(2, 3200, 5), (3, 4800, 7)]


def drawn(batch: int, length: int, labels: int) -> dict[str, Any]:
    return {"x": torch.randn(batch, length), "labels": torch.randint(0, 9, (batch, labels))}


def wider(*point: int) -> dict[str, Any]:
    return {**drawn(*point), "x": torch.randn(point[0], point[1] + 1)}


def longer_texts(*point: int) -> dict[str, Any]:
    return {**drawn(*point), "labels": torch.full((point[0], point[2]), 8)}


def weighted(*point: int) -> dict[str, Any]:
    return {**drawn(*point), "weight": torch.ones(point[0])}


def halved(*point: int) -> dict[str, Any]:
    return {**drawn(*point), "weight": torch.full((point[0],), 0.5)}


def test_it_changes_with_shapes_and_kept_values_alone() -> None:
    state = torch.get_rng_state()
    identities = [batch_identity(batches, POINTS) for batches in (drawn, wider, longer_texts, weighted, halved)]
    assert len(set(identities)) == 5
    assert torch.equal(torch.get_rng_state(), state)
    torch.randn(3)
    assert batch_identity(drawn, POINTS) == identities[0], "random labels are drawn from the same seed"
    assert batch_identity(drawn, POINTS[:1]) != identities[0]
