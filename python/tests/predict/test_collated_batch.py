"""Collated batches of every kind in pieces, and the size of micro-batches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from transformers.modeling_outputs import CausalLMOutput as CTCOutput

from asrconfig_go._core.batches import (
    Extent,
    UnsplittableBatchError,
    batch_size,
    check_rows,
    copied,
    extent,
    pick,
    piece,
    shallow,
    split,
    tensors_of,
)
from asrconfig_go.errors import InvalidArgumentError
from asrconfig_go.guard.micro_batches import Budget


def batch() -> dict[str, Any]:
    return {
        "input_values": torch.arange(10.0).reshape(5, 2),
        "labels": torch.tensor([[1, -100], [1, 2], [3, 4], [5, -100], [6, 7]]),
        "names": ["a", "b", "c", "d", "e"],
        "return_dict": True,
        "mask": None,
        "scale": torch.tensor(2.0),
        "language": "sv",
    }


def test_pieces_have_every_sample_once_and_what_is_shared() -> None:
    full = batch()
    parts = split(full, 2)
    assert [batch_size(part) for part in parts] == [2, 2, 1]
    assert torch.equal(torch.cat([part["input_values"] for part in parts]), full["input_values"])
    assert [name for part in parts for name in part["names"]] == full["names"]
    for part in parts:
        assert (part["return_dict"], part["mask"], float(part["scale"]), part["language"]) == (True, None, 2.0, "sv")
    assert parts[0]["input_values"].data_ptr() == full["input_values"].data_ptr(), "a view"


def test_the_kind_of_mapping_stays() -> None:
    features = transformers.BatchFeature(batch())
    parts = split(features, 3)
    assert [type(part) for part in parts] == [transformers.BatchFeature] * 2
    assert len(parts[1]["names"]) == 2
    assert len(features["names"]) == 5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weights": torch.zeros(3)}, "a batch of 5 clips cannot be split: weights has 3"),
        ({"a": torch.zeros(2), "b": [1]}, "cannot be split: a has 2, b has 1"),
    ],
)
def test_entries_that_disagree_are_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message) as caught:
        split({**batch(), **change}, 2)
    assert "split=" in str(caught.value)


def test_a_batch_of_settings_cannot_be_cut() -> None:
    with pytest.raises(InvalidArgumentError, match="no entry with one value for each clip"):
        batch_size({"scale": torch.tensor(1.0), "name": "x"})


class Pair(NamedTuple):
    x: Any
    y: Any


X, Y = torch.arange(10.0).reshape(5, 2), torch.arange(5)
KINDS: dict[str, tuple[Any, Callable[[Any], tuple[Any, Any]]]] = {
    "tensor": (X, lambda b: (b, b[:, 0])),
    "dict": ({"x": X, "y": Y}, lambda b: (b["x"], b["y"])),
    "tuple": ((X, Y), lambda b: b),
    "list": ([X, Y], lambda b: tuple(b)),
    "named tuple": (Pair(X, Y), lambda b: (b.x, b.y)),
    "tuple of a dict": (({"x": X}, Y), lambda b: (b[0]["x"], b[1])),
    "dict of dicts": ({"audio": {"inner": {"x": X}}, "labels": Y}, lambda b: (b["audio"]["inner"]["x"], b["labels"])),
    "dict of a tuple": ({"both": (X, Y), "labels": Y}, lambda b: b["both"]),
    "dict of lists": ({"x": X, "y": Y.tolist()}, lambda b: (b["x"], torch.tensor(b["y"]))),
    "list of rows": ([{"x": X[i], "y": Y[i]} for i in range(5)], lambda b: tuple(
        torch.stack([row[name] for row in b]) for name in ("x", "y")
    )),
    "BatchFeature": (transformers.BatchFeature({"x": X, "y": Y}), lambda b: (b["x"], b["y"])),
    "ModelOutput": (CTCOutput(loss=X, logits=Y), lambda b: (b.loss, b.logits)),
    "dict of a ModelOutput": ({"encoder": CTCOutput(loss=X), "labels": Y}, lambda b: (b["encoder"].loss, b["labels"])),
}  # fmt: skip


@pytest.mark.parametrize("kind", list(KINDS))
def test_batches_of_every_kind_are_split_into_the_same_kind(kind: str) -> None:
    full, entries = KINDS[kind]
    assert batch_size(full) == check_rows(full) == 5
    parts = split(full, 2)
    assert [batch_size(part) for part in parts] == [2, 2, 1]
    assert {type(part) for part in parts} == {type(full)}
    for wanted, *got in zip(entries(full), *map(entries, parts), strict=True):
        assert torch.equal(torch.cat(got), wanted)
    for picked, wanted in zip(entries(pick(full, [4, 0, 3])), entries(full), strict=True):
        assert torch.equal(picked, wanted[[4, 0, 3]])
    for got, wanted in zip(entries(piece(full, 1, 3)), entries(full), strict=True):
        assert torch.equal(got, wanted[1:3])
    assert all(torch.equal(a, b) for a, b in zip(entries(full), (X, X[:, 0] if kind == "tensor" else Y), strict=True))


@pytest.mark.parametrize("kind", list(KINDS))
def test_copies_share_no_tensor_and_shallow_ones_all(kind: str) -> None:
    full, entries = KINDS[kind]
    copy, same = copied(full), shallow(full)
    assert type(copy) is type(same) is type(full)
    assert {t.data_ptr() for t in tensors_of(copy)}.isdisjoint({t.data_ptr() for t in tensors_of(full)})
    assert all(torch.equal(a, b) for a, b in zip(entries(copy), entries(full), strict=True))
    if kind != "tensor":
        assert same is not full or isinstance(full, tuple)
        assert [t.data_ptr() for t in tensors_of(same)] == [t.data_ptr() for t in tensors_of(full)]


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ((X, torch.zeros(3)), "a batch of 5 clips cannot be split: entry 1 has 3"),
        ([X, torch.zeros(1, 2)], "entry 1 has 1"),
        ({"x": {"inner": torch.zeros(4)}, "labels": Y}, r"x\.inner has 4"),
        ({"pair": (X, torch.zeros(2)), "labels": Y}, "pair has 2"),
        ({"sampled_negative_indices": Y, "labels": Y}, "positions in the whole batch"),
    ],
)
def test_what_does_not_belong_to_clips_one_by_one_is_named(inputs: Any, message: str) -> None:
    with pytest.raises(UnsplittableBatchError, match=message) as caught:
        split(inputs, 2)
    assert "split=" in str(caught.value)


def test_a_batch_of_an_unknown_kind_is_refused_by_its_name() -> None:
    @dataclass
    class Batch:
        x: Any
        y: Any

    for ask in (batch_size, check_rows, lambda whole: split(whole, 2)):
        with pytest.raises(UnsplittableBatchError, match="a batch of Batch has no entry"):
            ask(Batch(X, Y))
    assert torch.equal(copied(Batch(X, Y)).x, X) and shallow(Batch(X, Y)).x is X


def test_what_has_no_rows_is_in_every_piece() -> None:
    full = ({"x": X, "config": {"name": "a", "scale": torch.tensor(2.0)}}, Y, torch.tensor(3.0), "text", None)
    for part in split(full, 3):
        assert part[0]["config"]["name"] == "a" and float(part[0]["config"]["scale"]) == 2.0
        assert (float(part[2]), *part[3:]) == (3.0, "text", None)


def test_short_clips_ride_in_larger_micro_batches() -> None:
    budget = Budget(None)
    assert budget.size(Extent(1000), 16) == 16
    budget.shrink(Extent(1000), 8)
    assert [budget.size(Extent(n), 16) for n in (100, 500, 800, 1000, 3000, 9000)] == [16, 16, 10, 8, 2, 1]
    assert budget.size(Extent(100, width=80), 16) == 1
    budget.shrink(Extent(9000), 1)
    assert budget.values == 8000, "a limit does not grow"
    budget = Budget(4)
    budget.shrink(extent({"labels": torch.zeros(4)}), 2)
    assert budget.size(extent({"labels": torch.zeros(9)}), 9) == 2, "an input of another name: samples count"
