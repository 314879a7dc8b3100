"""Noise under the speech of padded batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._errors import InvalidArgumentError
from .audio import load_audio
from .batches import Array, chosen, inside, powers
from .checks import check_probability


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
        low, high = self.snr_db
        if not -100 <= low <= high <= 200:
            raise InvalidArgumentError(f"snr_db = {self.snr_db} is not a range from -100 to 200", "(5, 30)")
        if self.noises is None:
            return
        loaded = tuple(load_audio(each) for each in self.noises)
        if not loaded or not all(map(np.any, loaded)):
            raise InvalidArgumentError("there are no noises, or one is silent", "leave it out, or noises=None: white")
        object.__setattr__(self, "noises", loaded)

    def __call__(self, batch: Array, lengths: Array, generator: np.random.Generator) -> tuple[Array, Array]:
        """The batch with noise, of the same shape."""
        rows = chosen(len(batch), self.probability, generator)
        ratios = generator.uniform(*self.snr_db, size=(len(rows), 1))
        if not len(rows):
            return batch, lengths
        own, clean = lengths[rows], batch[rows]
        noise = self._drawn((len(rows), batch.shape[1]), generator) * inside(own, batch.shape[1])
        loudness = powers(noise, own)
        wanted = powers(clean, own) / (10 ** (ratios / 10)).astype(np.float32)
        noise *= np.sqrt(wanted / np.where(loudness > 0, loudness, 1))
        result = batch.copy()
        result[rows] += noise
        return result, lengths

    def _drawn(self, shape: tuple[int, int], generator: np.random.Generator) -> Array:
        if self.noises is None:
            white: Array = generator.standard_normal(shape, dtype=np.float32)
            return white
        made: Array = np.empty(shape, dtype=np.float32)
        for row, which in zip(made, generator.integers(len(self.noises), size=len(made)), strict=True):
            row[:] = _piece(self.noises[which], len(row), generator)
        return made


def _piece(noise: Array, count: int, generator: np.random.Generator) -> Array:
    """So many samples from a random place, repeated where there are too few."""
    spare = len(noise) - count
    if spare < 0:
        return np.resize(np.roll(noise, -int(generator.integers(len(noise)))), count)
    start = int(generator.integers(spare + 1))
    return noise[start : start + count]
