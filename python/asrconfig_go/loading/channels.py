"""Mixing channels to mono unless they cancel each other, and detecting silent clips."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from .padded_clips import Array

# Of the energy that the mean of unlike channels has. Of two channels of one loudness, 0.02 is 20 dB below either.
_CANCELS = 0.02
_SILENT = 1e-4  # of full scale: -80 dB, three steps of 16 bits


class Decoded(NamedTuple):
    """Mono samples of a clip and their rate; ``one_channel``: of one channel alone, as all cancel each other."""

    samples: Array
    rate: int
    one_channel: bool = False


class Mix:
    """Means of a clip's channels, block by block; or the samples of ``channel`` instead."""

    def __init__(self, channel: int | None = None) -> None:
        self._channel = channel
        self._energy = 0.0
        self._energies: list[float] = []

    def __call__(self, block: Array, axis: int) -> Array:
        """``block`` without its ``axis`` of channels."""
        if self._channel is not None:
            alone: Array = np.ascontiguousarray(block.take(self._channel, axis))
            return alone
        mix: Array = block.mean(axis)
        self._energy += _energy(mix)
        energies = [_energy(block.take(channel, axis)) for channel in range(block.shape[axis])]
        self._energies = [a + b for a, b in zip(self._energies or [0.0] * len(energies), energies, strict=True)]
        return mix

    def channel_instead(self) -> int | None:
        """The loudest channel, where the mean has far less energy than the channels; else None."""
        count = len(self._energies)
        if not count or not self._energy < _CANCELS * sum(self._energies) / count**2:
            return None
        return self._energies.index(max(self._energies))


def is_silent(samples: Array) -> bool:
    """Whether a clip is silent."""
    return bool(len(samples)) and max(float(samples.max()), -float(samples.min())) < _SILENT


def _energy(samples: Array) -> float:
    return float(np.dot(samples, samples))
