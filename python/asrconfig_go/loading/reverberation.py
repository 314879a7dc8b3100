"""Reverberation of padded batches by FFT."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._errors import InvalidArgumentError, UnsupportedError
from .audio import load_audio
from .batches import Array, chosen, inside, powers
from .checks import check_probability

_RT60_RANGE = (0.05, 5.0)  # seconds, from a car to a cathedral


@dataclass(frozen=True, eq=False)
class Reverberation:
    """Convolves each clip with an impulse response drawn at random, or leaves it (1 - ``probability``).

    ``impulses`` are arrays of (samples,) at the clips' rate, or what ``load_audio`` takes; see ``made`` for some to
    start with. Each is cut to begin at its direct path, the largest sample, so that speech stays where it was; lengths
    stay, what rings on behind a clip's end is cut off, and each clip keeps its power.

    A batch is transformed at once: an impulse of a second costs no more than one of a tenth. Needs scipy. Raises
    ``InvalidArgumentError`` for no impulses or silent ones, and a ``probability`` outside 0 to 1.
    """

    impulses: Sequence[Any]
    probability: float = 1.0

    def __post_init__(self) -> None:
        check_probability(self.probability)
        if not len(self.impulses):
            raise InvalidArgumentError("there are no impulses", "Reverberation.made() makes some")
        object.__setattr__(self, "impulses", tuple(_from_direct_path(load_audio(each)) for each in self.impulses))

    @classmethod
    def made(
        cls,
        rt60_s: tuple[float, float] = (0.15, 0.8),
        *,
        count: int = 32,
        sample_rate: int = 16_000,
        probability: float = 1.0,
        seed: int = 0,
    ) -> Reverberation:
        """With ``count`` made rooms: a direct path and noise that decays by 60 dB within 0.05 to 5 s.

        Decay times are spread evenly over ``rt60_s``, in seconds; the same ``seed`` makes the same rooms. Recorded
        impulse responses are better where you have them.
        """
        low, high = rt60_s
        if not _RT60_RANGE[0] <= low <= high <= _RT60_RANGE[1]:
            raise InvalidArgumentError(f"rt60_s = {rt60_s} is not a range within {_RT60_RANGE}", "(0.15, 0.8)")
        if count < 1:
            raise InvalidArgumentError(f"count = {count} makes no room", "32 is plenty")
        generator = np.random.default_rng(seed)
        return cls([room(rt60, sample_rate, generator) for rt60 in np.linspace(low, high, count)], probability)

    def __call__(self, batch: Array, lengths: Array, generator: np.random.Generator) -> tuple[Array, Array]:
        """The batch with reverberation, of the same shape; padding stays zero."""
        rows = chosen(len(batch), self.probability, generator)
        which = generator.integers(len(self.impulses), size=len(rows))
        if not len(rows):
            return batch, lengths
        dry, own = batch[rows], lengths[rows]
        wet = _convolved(dry, [self.impulses[i] for i in which]) * inside(own, batch.shape[1])
        was, now = powers(dry, own), powers(wet, own)
        wet *= np.sqrt(was / np.where(now > 0, now, 1))
        result = batch.copy()
        result[rows] = wet
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
    """From the largest sample on, which becomes 1."""
    at = int(np.argmax(np.abs(impulse)))
    if impulse[at] == 0:
        raise InvalidArgumentError("an impulse response is silent", "leave it out")
    cut: Array = np.ascontiguousarray(impulse[at:] / impulse[at], dtype=np.float32)
    return cut


def _convolved(batch: Array, impulses: Sequence[Array]) -> Array:
    """Each row with its impulse, as many samples as there are."""
    fft = _fft()
    width = batch.shape[1]
    longest = min(width, max(map(len, impulses)))
    size = fft.next_fast_len(width + longest - 1, real=True)
    kernels = np.zeros((len(impulses), longest), dtype=np.float32)
    for kernel, impulse in zip(kernels, impulses, strict=True):
        kernel[: len(impulse)] = impulse[:longest]
    spectrum = fft.rfft(batch, size)
    spectrum *= fft.rfft(kernels, size)
    made: Array = fft.irfft(spectrum, size, overwrite_x=True)[:, :width]
    return made


def _fft() -> Any:
    try:
        import scipy.fft
    except ImportError as error:
        raise UnsupportedError("reverberation needs scipy", "pip install scipy") from error
    return scipy.fft
