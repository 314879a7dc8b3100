"""Padded batches of clips, and the type of augmentations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Augmentation = Callable[[Array, Array, np.random.Generator], tuple[Array, Array]]
"""(batch of float32 (clips, samples) padded with zeros, lengths (clips,), generator) -> (batch, lengths)."""


def padded(clips: Sequence[Array]) -> tuple[Array, Array]:
    """The clips as one new float32 array (clips, longest), padded with zeros at the end, and their lengths."""
    lengths = np.array([len(clip) for clip in clips], dtype=np.int64)
    batch: Array = np.zeros((len(clips), int(lengths.max(initial=0))), dtype=np.float32)
    for row, clip in zip(batch, clips, strict=True):
        row[: len(clip)] = clip
    return batch, lengths


def augmented(clips: Sequence[Array], augment: Sequence[Augmentation], generator: np.random.Generator) -> list[Array]:
    """The clips after all augmentations in their order, without padding; the clips given stay as they are."""
    batch, lengths = padded(clips)
    for change in augment:
        batch, lengths = change(batch, lengths, generator)
    return [row[:length] for row, length in zip(batch, lengths, strict=True)]


def chosen(count: int, probability: float, generator: np.random.Generator) -> Array:
    """The rows that an augmentation of this probability changes."""
    return np.flatnonzero(generator.random(count) < probability)


def power(clip: Array) -> float:
    """The mean square of a clip."""
    return float(np.dot(clip, clip)) / max(1, len(clip))
