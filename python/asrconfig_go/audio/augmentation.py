"""Augmentation of padded batches: noise, reverberation, speed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from .._core.checks import checked_list, in_range, listed
from .._core.requirements import imported
from .._core.settings import SAMPLING_RATE
from ..errors import InvalidArgumentError, UnsupportedError
from .decoding import Array, check_rate, find_resampler, load_audio

_SMALLEST = 8192  # samples of a block
_RANGE = (0.5, 2.0)
_SHORTEST = 100  # numerator and denominator of a factor are at most this: 0.9 is 9/10
_RT60_RANGE = (0.05, 5.0)  # seconds, from a car to a cathedral
_MAX_ROOMS = 10_000

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


def _chosen(count: int, probability: float, generator: np.random.Generator) -> Array:
    """The rows that an augmentation of this probability changes."""
    return np.flatnonzero(generator.random(count) < probability)


def _power(clip: Array) -> float:
    """The mean square of a clip."""
    return float(np.dot(clip, clip)) / max(1, len(clip))


def _check_probability(probability: float) -> None:
    in_range("probability", probability, 0, 1, "1.0 changes every clip")


def _check_range(name: str, value: object, low: float, high: float, usual: str) -> tuple[float, float]:
    """The two ends of a range within ``low`` to ``high``; ``InvalidArgumentError`` for anything else."""
    numbers = checked_list(name, value, float)
    if len(numbers) != 2 or not low <= numbers[0] <= numbers[1] <= high:
        raise InvalidArgumentError(f"{name} = {value!r} is not a range within {low:g} to {high:g}", usual)
    return numbers[0], numbers[1]


@dataclass(frozen=True, eq=False)
class AddNoise:
    """Adds noise to each clip at a random signal-to-noise ratio.

    Both powers are those over the clip's own samples: padding is not counted, and stays zero. Silent clips stay silent.

    Args:
        snr_db: The range in dB from which the ratio is drawn, within -100 to 200.
        noises: Arrays of shape (samples,) at the clips' rate, or what ``load_audio`` takes; a clip gets a piece from a
            random place of a random one, repeated where it is too short. None for white noise.
        probability: The share of clips, 0 to 1, that are changed; the others stay as they are.

    Raises:
        InvalidArgumentError: ``snr_db`` is no range, a noise is silent, or ``probability`` is out of its range.
    """

    snr_db: tuple[float, float] = (5.0, 30.0)
    noises: Sequence[Any] | None = field(default=None, repr=False)
    probability: float = 1.0

    def __post_init__(self) -> None:
        _check_probability(self.probability)
        _check_range("snr_db", self.snr_db, -100, 200, "(5, 30)")
        if self.noises is None:
            return
        loaded = tuple(load_audio(noise) for noise in listed("noises", self.noises))
        if not loaded or not all(map(np.any, loaded)):
            raise InvalidArgumentError("there are no noises, or one is silent", "leave it out, or noises=None: white")
        object.__setattr__(self, "noises", loaded)

    def __call__(self, batch: Array, lengths: Array, generator: np.random.Generator) -> tuple[Array, Array]:
        """Return the batch with noise, of the same shape, and its lengths."""
        rows = _chosen(len(batch), self.probability, generator)
        result = batch.copy()
        for row, ratio in zip(rows, generator.uniform(*self.snr_db, size=len(rows)), strict=True):
            clip = result[row, : lengths[row]]
            noise = self._drawn(len(clip), generator)
            clip += noise * np.float32(math.sqrt(_power(clip) / 10 ** (ratio / 10) / (_power(noise) or 1)))
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


class BlockConvolution:
    """Overlap-add with the impulse's spectrum computed once, in half the time of ``scipy.signal.oaconvolve``."""

    def __init__(self, impulse: Array) -> None:
        self._impulse = impulse
        self._block = max(_SMALLEST, 1 << (3 * len(impulse) - 1).bit_length())
        self._spectrum: Array | None = None

    def __call__(self, clip: Array) -> Array:
        """The augmented clip, float32, of the same length."""
        fft = imported("scipy.fft", "reverberation")
        if self._spectrum is None:
            self._spectrum = fft.rfft(self._impulse, self._block)
        step = self._block - len(self._impulse) + 1  # more than half a block: a tail reaches one block further
        blocks = -(-len(clip) // step)
        parts: Array = np.zeros((blocks, step), dtype=np.float32)
        parts.reshape(-1)[: len(clip)] = clip
        spectra = fft.rfft(parts, self._block)
        spectra *= self._spectrum
        wet: Array = fft.irfft(spectra, self._block, overwrite_x=True)
        wet[1:, : self._block - step] += wet[:-1, step:]
        return wet[:, :step].reshape(-1)[: len(clip)]

    def __getstate__(self) -> Array:
        return self._impulse

    def __setstate__(self, impulse: Array) -> None:
        self.__init__(impulse)  # type: ignore[misc]


@dataclass(frozen=True)
class ChangeSpeed:
    """Plays each clip at a random speed, which changes tempo and pitch alike.

    At 1.1 a clip is a tenth faster and shorter. Lengths change, so put it first: what follows then has less to do, or
    as much as before. It requires soxr or scipy.

    Args:
        factors: The speeds to draw from, each 0.5 to 2. They are rounded to a ratio with a denominator of at most 100.
        probability: The share of clips, 0 to 1, that are changed; the others stay as they are.

    Raises:
        InvalidArgumentError: A factor or ``probability`` is out of its range.
    """

    factors: tuple[float, ...] = (0.9, 1.0, 1.1)
    probability: float = 1.0

    def __post_init__(self) -> None:
        _check_probability(self.probability)
        factors = checked_list("factors", self.factors, float)
        if not factors or not all(_RANGE[0] <= factor <= _RANGE[1] for factor in factors):
            raise InvalidArgumentError(f"factors = {self.factors} are not all within {_RANGE}", "(0.9, 1.0, 1.1)")

    def __call__(self, batch: Array, lengths: Array, generator: np.random.Generator) -> tuple[Array, Array]:
        """Return the batch at other speeds, and its new lengths."""
        ratios = [Fraction(factor).limit_denominator(_SHORTEST) for factor in self.factors]
        which = generator.integers(len(ratios), size=len(batch))
        which[generator.random(len(batch)) >= self.probability] = -1  # as they are
        clips = [row[:length] for row, length in zip(batch, lengths, strict=True)]
        return padded([_at_speed(clip, ratios[i] if i >= 0 else 1) for clip, i in zip(clips, which, strict=True)])


def _at_speed(clip: Array, speed: Fraction | int) -> Array:
    if speed == 1:
        return clip
    _, resample = find_resampler()
    if resample is None:
        raise UnsupportedError("other speeds need soxr or scipy", "pip install soxr")
    changed: Array = resample(clip, speed.numerator, speed.denominator)
    return changed


@dataclass(frozen=True, eq=False)
class Reverberation:
    """Convolves each clip with a random impulse response.

    Each response is trimmed to begin at its direct path, the largest sample, so that speech stays where it was; lengths
    stay, the tail after a clip's end is dropped, and each clip keeps its power. It requires scipy.

    Args:
        impulses: Impulse responses: arrays of shape (samples,) at the clips' rate, or what ``load_audio`` takes; see
            ``made`` for some to start with.
        probability: The share of clips, 0 to 1, that are changed; the others stay as they are.

    Raises:
        InvalidArgumentError: There are no impulse responses, one is silent, or ``probability`` is out of its range.
    """

    impulses: Sequence[Any] = field(repr=False)
    probability: float = 1.0
    _rooms: tuple[BlockConvolution, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        _check_probability(self.probability)
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
        """Make the impulse responses: a direct path, and noise that decays by 60 dB within a room's decay time.

        Recorded impulse responses are better where you have them.

        Args:
            rt60_s: The range of the decay times in seconds, within 0.05 to 5, over which the rooms are spread evenly.
            count: The number of rooms, 1 to 10 000.
            sample_rate: The clips' rate in hertz.
            probability: The share of clips, 0 to 1, that are changed.
            seed: Draws the noise; the same seed makes the same rooms.

        Returns:
            The augmentation with these rooms.

        Raises:
            InvalidArgumentError: A value is out of its range.
        """
        low, high = _check_range("rt60_s", rt60_s, *_RT60_RANGE, "(0.15, 0.8)")
        in_range("count", count, 1, _MAX_ROOMS, "32 is enough", int)
        check_rate(sample_rate)
        generator = np.random.default_rng(in_range("seed", seed, 0, 2**64 - 1, "0", int))
        return cls([room(rt60, sample_rate, generator) for rt60 in np.linspace(low, high, count)], probability)

    def __call__(self, batch: Array, lengths: Array, generator: np.random.Generator) -> tuple[Array, Array]:
        """Return the batch with reverberation, of the same shape, and its lengths; padding stays zero."""
        rows = _chosen(len(batch), self.probability, generator)
        which = generator.integers(len(self.impulses), size=len(rows))
        result = batch.copy()
        for row, length, i in zip(rows, lengths[rows], which, strict=True):
            dry = batch[row, :length]
            wet = self._rooms[i](dry)
            wet *= np.sqrt(_power(dry) / (_power(wet) or 1))
            result[row, :length] = wet
        return result, lengths


def room(rt60_s: float, sample_rate: int, generator: np.random.Generator) -> Array:
    """An impulse response: 1, then Gaussian noise whose power falls by 60 dB in ``rt60_s`` seconds.

    The tail begins 2.5 ms after the direct path and holds as much energy as it: the microphone is at the room's
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
