"""Reverberation of padded batches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .._base.defaults import SAMPLING_RATE
from .._base.errors import InvalidArgumentError
from .audio import load_audio
from .convolution import BlockConvolution
from .loading_checks import check_count, check_probability, check_range, check_rate
from .padded_clips import Array, chosen, power

_RT60_RANGE = (0.05, 5.0)  # seconds, from a car to a cathedral
_MAX_ROOMS = 10_000


@dataclass(frozen=True, eq=False)
class Reverberation:
    """Convolves each clip with an impulse response drawn at random, or leaves it (1 - ``probability``).

    ``impulses`` are arrays of (samples,) at the clips' rate, or what ``load_audio`` takes; see ``made`` for some to
    start with. Each is trimmed to begin at its direct path, the largest sample, so that speech stays where it was;
    lengths stay, the tail after a clip's end is dropped, and each clip keeps its power.

    Needs scipy. Raises ``InvalidArgumentError`` for no impulses or silent ones, and a ``probability`` outside 0 to 1.
    """

    impulses: Sequence[Any]
    probability: float = 1.0
    _rooms: tuple[BlockConvolution, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_probability(self.probability)
        if not len(self.impulses):
            raise InvalidArgumentError("there are no impulses", "Reverberation.made() makes some")
        impulses = tuple(_from_direct_path(load_audio(impulse)) for impulse in self.impulses)
        object.__setattr__(self, "impulses", impulses)
        object.__setattr__(self, "_rooms", tuple(map(BlockConvolution, impulses)))

    @classmethod
    def made(
        cls,
        rt60_s: tuple[float, float] = (0.15, 0.8),
        *,
        count: int = 32,
        sample_rate: int = SAMPLING_RATE,
        probability: float = 1.0,
        seed: int = 0,
    ) -> Reverberation:
        """With ``count`` made rooms: a direct path and noise that decays by 60 dB within 0.05 to 5 s.

        Decay times are spread evenly over ``rt60_s``, in seconds; the same ``seed`` makes the same rooms. Recorded
        impulse responses are better where you have them.
        """
        low, high = check_range("rt60_s", rt60_s, *_RT60_RANGE, "(0.15, 0.8)")
        check_count("count", count, 1, _MAX_ROOMS, "32 is enough")
        check_rate(sample_rate)
        generator = np.random.default_rng(check_count("seed", seed, 0, 2**64 - 1, "0"))
        return cls([room(rt60, sample_rate, generator) for rt60 in np.linspace(low, high, count)], probability)

    def __call__(self, batch: Array, lengths: Array, generator: np.random.Generator) -> tuple[Array, Array]:
        """The batch with reverberation, of the same shape; padding stays zero."""
        rows = chosen(len(batch), self.probability, generator)
        which = generator.integers(len(self.impulses), size=len(rows))
        result = batch.copy()
        for row, length, i in zip(rows, lengths[rows], which, strict=True):
            dry = batch[row, :length]
            wet = self._rooms[i](dry)
            wet *= np.sqrt(power(dry) / (power(wet) or 1))
            result[row, :length] = wet
        return result, lengths


def room(rt60_s: float, sample_rate: int, generator: np.random.Generator) -> Array:
    """An impulse response: 1, then Gaussian noise whose power falls by 60 dB in ``rt60_s`` seconds.

    The tail begins 2.5 ms behind the direct path and holds as much energy as it: the microphone is at the room's
    critical distance, half a metre to two metres from the speaker in most.
    """
    count = max(2, math.ceil(rt60_s * sample_rate))
    seconds = np.arange(count) / sample_rate
    tail = generator.standard_normal(count) * 10 ** (-3 * seconds / rt60_s)
    tail[: math.ceil(0.0025 * sample_rate)] = 0
    tail /= max(float(np.sqrt(np.sum(tail**2))), 1e-12)
    tail[0] = 1
    impulse: Array = tail.astype(np.float32)
    return impulse


def _from_direct_path(impulse: Array) -> Array:
    at = int(np.argmax(np.abs(impulse)))
    if impulse[at] == 0:
        raise InvalidArgumentError("an impulse response is silent", "leave it out")
    cut: Array = np.ascontiguousarray(impulse[at:] / impulse[at], dtype=np.float32)
    return cut
