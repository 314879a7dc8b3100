"""Noise under the speech of padded batches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._base.checks import listed
from .._base.errors import InvalidArgumentError
from .audio import load_audio
from .loading_checks import check_probability, check_range
from .padded_clips import Array, chosen, power


@dataclass(frozen=True, eq=False)
class AddNoise:
    """Adds noise at a signal-to-noise ratio drawn from ``snr_db``, in dB, to each clip, or leaves it.

    ``noises`` are arrays of (samples,) at the clips' rate, or what ``load_audio`` takes; a clip gets a piece from a
    random place of a random one, repeated where it is too short. Without any, it is white noise. Both powers are those
    over the clip's own samples: padding is not counted, and stays zero. Silent clips stay silent.

    Raises ``InvalidArgumentError`` for an empty range, silent noise, and a ``probability`` outside 0 to 1.
    """

    snr_db: tuple[float, float] = (5.0, 30.0)
    noises: Sequence[Any] | None = None
    probability: float = 1.0

    def __post_init__(self) -> None:
        check_probability(self.probability)
        check_range("snr_db", self.snr_db, -100, 200, "(5, 30)")
        if self.noises is None:
            return
        loaded = tuple(load_audio(noise) for noise in listed("noises", self.noises))
        if not loaded or not all(map(np.any, loaded)):
            raise InvalidArgumentError("there are no noises, or one is silent", "leave it out, or noises=None: white")
        object.__setattr__(self, "noises", loaded)

    def __call__(self, batch: Array, lengths: Array, generator: np.random.Generator) -> tuple[Array, Array]:
        """The batch with noise, of the same shape."""
        rows = chosen(len(batch), self.probability, generator)
        result = batch.copy()
        for row, ratio in zip(rows, generator.uniform(*self.snr_db, size=len(rows)), strict=True):
            clip = result[row, : lengths[row]]
            noise = self._drawn(len(clip), generator)
            clip += noise * np.float32(math.sqrt(power(clip) / 10 ** (ratio / 10) / (power(noise) or 1)))
        return result, lengths

    def _drawn(self, count: int, generator: np.random.Generator) -> Array:
        if self.noises is None:
            white: Array = generator.standard_normal(count, dtype=np.float32)
            return white
        return _piece(self.noises[int(generator.integers(len(self.noises)))], count, generator)


def _piece(noise: Array, count: int, generator: np.random.Generator) -> Array:
    spare = len(noise) - count
    if spare < 0:
        looped: Array = np.resize(np.roll(noise, -int(generator.integers(len(noise)))), count)
        return looped
    start = int(generator.integers(spare + 1))
    return noise[start : start + count]
