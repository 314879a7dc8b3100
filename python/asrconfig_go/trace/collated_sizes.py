"""Sizes of a collated batch of one example, and entries of other sizes made of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from .._base.defaults import SAMPLING_RATE
from .._base.errors import InvalidArgumentError
from .._base.input_units import INPUTS

Key = tuple[str, int]  # an entry and one of its axes; axis 0 of one number for each sample: its value


@dataclass(frozen=True)
class Example:
    """The sizes of a batch of one row; its ``length`` is that of the input."""

    row: int
    sizes: dict[Key, int]
    length: int = 1


def sizes_of(batch: dict[str, Any]) -> dict[Key, int]:
    """Of a batch of one: each axis, and numbers that are called lengths."""
    found: dict[Key, int] = {}
    for name, value in batch.items():
        if isinstance(value, torch.Tensor) and value.dim() and value.shape[0] != 1:
            raise InvalidArgumentError(
                f"the collator makes {value.shape[0]} rows of {name!r} of one example",
                "pass batch_fn(batch, length, labels) -> the model's keyword arguments as tensors",
            )
        if isinstance(value, torch.Tensor):
            found |= {(name, axis): size for axis, size in enumerate(value.shape) if axis}
            if value.dim() == 1 and "len" in name and not value.is_floating_point():
                found[(name, 0)] = int(value[0])
    return found


def input_key(sized: Mapping[int, dict[Key, int]]) -> Key:
    """The input and its axis in time: what changes from example to example, or else its longest."""
    first = next(iter(sized.values()))
    names = list(dict.fromkeys(name for name, axis in first if axis and "label" not in name and "mask" not in name))
    name = next((known for known in INPUTS if known in names), names[0] if names else "")
    axes = [key for key in first if key[0] == name and key[1]]
    changing = [key for key in axes if len({sizes.get(key) for sizes in sized.values()}) > 1]
    return max(changing or axes, key=lambda key: first[key], default=("", 0))


def line_through(key: Key, shortest: Example, longest: Example) -> Callable[[float], float]:
    """The size of an axis by the input's length."""
    """The size of an axis by the input's length."""
    rise = (longest.sizes[key] - shortest.sizes[key]) / max(1, longest.length - shortest.length)
    return lambda length: shortest.sizes[key] + rise * (length - shortest.length)


def picked(value: Any, rows: Iterable[int], count: int) -> Any:
    """The entry of a larger batch: rows of a smaller one again and again."""
    if isinstance(value, torch.Tensor) and value.dim() and value.shape[0] == count:
        return value[list(rows)]
    return [value[i] for i in rows] if isinstance(value, list) and len(value) == count else value


def stretched(value: torch.Tensor, axis: int, size: int) -> torch.Tensor:
    """Numbers repeated or cut; whole ones (tokens, masks, labels) spread or thinned, so that padding stays last."""
    old = value.shape[axis]
    if not old:
        return value.new_zeros([size if at == axis else n for at, n in enumerate(value.shape)])
    places = torch.arange(size)
    return value.index_select(axis, places % old if value.is_floating_point() else places * old // size).contiguous()


def word_of(name: str, rate: float) -> str:
    """What an input counts."""
    """What an input counts."""
    return "tokens" if name == "input_ids" else "samples" if rate == SAMPLING_RATE else "frames"
