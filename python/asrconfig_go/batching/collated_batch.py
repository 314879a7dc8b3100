"""Collated batches in pieces.

The batch is split as it was collated, padding included: collating its samples again would pad them to other lengths,
which changes what group normalisation over time and convolutions compute.
"""

from __future__ import annotations

import copy
from collections import UserDict
from collections.abc import Mapping
from typing import Any

from .._base.errors import InvalidArgumentError

_HINT = "give attach(split=…) a function that takes (inputs, size) and gives a list of inputs"
_MAIN = ("labels", "input_values", "input_features", "input_ids")


class UnsplittableBatchError(InvalidArgumentError):
    """A batch has entries that do not belong to its samples one by one."""


def batch_size(inputs: Mapping[str, Any]) -> int:
    """The number of samples in a collated batch: the length of its labels or its input, or else of its first list."""
    for name in _MAIN:
        count = _rows(inputs.get(name))
        if count is not None:
            return count
    others = list(_lengths(inputs).values())
    if not others:
        raise InvalidArgumentError(
            f"a batch of {sorted(inputs)} has no entry with one value for each sample",
            "collate the tensors that have a row for each sample as entries of the batch itself, not within others",
        )
    return others[0]


def _lengths(inputs: Mapping[str, Any]) -> dict[str, int]:
    return {name: count for name, value in inputs.items() if (count := _rows(value)) is not None}


def _rows(value: Any) -> int | None:
    """The length of tensors and arrays but scalars, and of lists; None of texts and settings."""
    shape = getattr(value, "shape", None)
    if shape is None:
        return len(value) if isinstance(value, list | tuple) else None
    return int(shape[0]) if len(shape) else None  # len() of a tensor takes several times as long


def split(inputs: Any, size: int) -> list[Any]:
    """``inputs`` in pieces of at most ``size`` samples, in order; what is shared is in all.

    Raises ``InvalidArgumentError`` when entries have other lengths than the batch, naming them.
    """
    n = check_rows(inputs)
    return [piece(inputs, start, min(start + size, n)) for start in range(0, n, size)]


def check_rows(inputs: Any) -> int:
    """The number of samples, or ``UnsplittableBatchError`` with the entries that have another one."""
    n = batch_size(inputs)
    if inputs.get("sampled_negative_indices") is not None:
        raise UnsplittableBatchError(
            "sampled_negative_indices holds positions in the whole batch, so that it cannot be split", _HINT
        )
    odd = [f"{name} is a mapping" for name, value in sorted(inputs.items()) if isinstance(value, Mapping)]
    odd += [f"{name} has {length}" for name, length in sorted(_lengths(inputs).items()) if length != n]
    if odd:
        raise UnsplittableBatchError(f"a batch of {n} samples cannot be split: {', '.join(odd)}", _HINT)
    return n


def piece(inputs: Any, start: int, stop: int) -> Any:
    """The samples from ``start`` to ``stop``, as the same kind of mapping."""
    return like(inputs, {name: v if _rows(v) is None else v[start:stop] for name, v in inputs.items()})


def copied(inputs: Any) -> Any:
    """The same with copies of all entries, which may be changed in place."""
    return like(inputs, {name: v.clone() if hasattr(v, "clone") else copy.deepcopy(v) for name, v in inputs.items()})


def pick(inputs: Any, rows: list[int]) -> Any:
    """The samples of these numbers, in their order, as the same kind of mapping."""

    def chosen(value: Any) -> Any:
        return value[rows] if hasattr(value, "shape") else type(value)(value[i] for i in rows)

    return like(inputs, {name: v if _rows(v) is None else chosen(v) for name, v in inputs.items()})


def like(inputs: Any, values: dict[str, Any]) -> Any:
    """A mapping of the kind of ``inputs`` (``BatchFeature``, dict) with other values."""
    if type(inputs) is dict:
        return values
    made = copy.copy(inputs)
    if isinstance(made, UserDict):
        made.data = values  # a copy shares it
        return made
    made.clear()
    made.update(values)
    return made
