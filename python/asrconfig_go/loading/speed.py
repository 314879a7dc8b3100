"""Speed augmentation of padded batches."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from .._base.checks import checked_list
from .._base.errors import InvalidArgumentError, UnsupportedError
from .loading_checks import check_probability
from .padded_clips import Array, padded
from .resampling import find_resampler

_RANGE = (0.5, 2.0)
_SHORTEST = 100  # numerator and denominator of a factor are at most this: 0.9 is 9/10


@dataclass(frozen=True)
class ChangeSpeed:
    """Plays each clip at a speed drawn from ``factors``, tempo and pitch alike, or leaves it (1 - ``probability``).

    At 1.1 a clip is a tenth faster and shorter. Factors are 0.5 to 2, taken as a ratio of numbers up to 100. Lengths
    change, so put it first: what comes then has less to do, or as much as there is. Needs soxr or scipy.

    Raises ``InvalidArgumentError`` for factors outside that range, and a ``probability`` outside 0 to 1.
    """

    factors: tuple[float, ...] = (0.9, 1.0, 1.1)
    probability: float = 1.0

    def __post_init__(self) -> None:
        check_probability(self.probability)
        factors = checked_list("factors", self.factors, float)
        if not factors or not all(_RANGE[0] <= factor <= _RANGE[1] for factor in factors):
            raise InvalidArgumentError(f"factors = {self.factors} are not all within {_RANGE}", "(0.9, 1.0, 1.1)")

    def __call__(self, batch: Array, lengths: Array, generator: np.random.Generator) -> tuple[Array, Array]:
        """The batch at other speeds, and its new lengths."""
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
