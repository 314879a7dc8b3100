"""Lengths of the samples of a collated batch, with and without padding."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from .._base.input_units import INPUTS
from .collated_batch import entries


@dataclass(frozen=True)
class Extent:
    """A sample's input: its length in samples of audio or frames, and values (numbers) in each of them."""

    length: int
    width: int = 1

    @property
    def values(self) -> int:
        """Numbers in all, at least 1."""
        return max(1, self.length * self.width)


def input_name(inputs: Any) -> str | None:
    """The entry that is the model's input; None of a model with other names."""
    for name in INPUTS:
        if hasattr(entries(inputs).get(name), "shape"):
            return name
    return None


def extent(inputs: Any) -> Extent:
    """The extent of each sample of a batch, padding included; 1 × 1 where the input is not known."""
    name = input_name(inputs)
    if name is None:
        return Extent(1)
    shape = inputs[name].shape
    if len(shape) <= 2:
        return Extent(int(shape[1]) if len(shape) == 2 else 1)
    axis = time_axis(inputs, name)
    return Extent(int(shape[axis]), math.prod(int(n) for i, n in enumerate(shape) if i not in (0, axis)))


def time_axis(inputs: Any, name: str) -> int:
    """The axis along which samples are padded: 1, or the last one of Whisper's (batch, mel bins, frames)."""
    mask, shape = inputs.get("attention_mask"), inputs[name].shape
    if len(shape) == 3 and hasattr(mask, "shape") and mask.shape[-1] == shape[1]:
        return 1
    return 2 if name == "input_features" and len(shape) == 3 and shape[2] > shape[1] else 1


def own_lengths(inputs: Any) -> list[int] | None:
    """The length of every sample without its padding, from an attention mask of ones, then zeros; None if unknown."""
    mask: Any = entries(inputs).get("attention_mask")
    name = input_name(inputs)
    if name is None or not hasattr(mask, "shape") or len(mask.shape) != 2:
        return None
    if mask.shape[1] != inputs[name].shape[time_axis(inputs, name)]:
        return None
    is_used: Any = mask != 0
    ones = is_used.int()
    if bool((ones.diff(dim=1) > 0).any()):
        return None
    return [max(1, int(n)) for n in ones.sum(1)]


def spoken_lengths(inputs: Any) -> list[int] | None:
    """As ``own_lengths``; without a mask from the zeros at the end of raw audio, by which it is padded."""
    lengths = own_lengths(inputs)
    values: Any = entries(inputs).get("input_values")
    if lengths is not None or not hasattr(values, "shape") or len(values.shape) != 2:
        return lengths
    length = values.shape[1]
    zeros = (values.flip(1) != 0).int().argmax(1)
    return [length - int(n) if bool(row.any()) else 1 for n, row in zip(zeros, values, strict=True)]
