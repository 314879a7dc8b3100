"""Other speeds of padded batches."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from .._errors import InvalidArgumentError, UnsupportedError
from .batches import Array, inside
from .checks import check_probability

_RANGE = (0.5, 2.0)
_SHORTEST = 100  # numerator and denominator of a factor are at most this: 0.9 is 9/10


@dataclass(frozen=True)
class ChangeSpeed:
    """Plays each clip at a speed drawn from ``factors``, tempo and pitch alike, or leaves it (1 - ``probability``).

    At 1.1 a clip is a tenth faster and shorter. Factors are 0.5 to 2, taken as a ratio of numbers up to 100. Clips of
    one factor are resampled together by scipy's polyphase filter. Lengths change, so put it first.

    Raises ``InvalidArgumentError`` for factors outside that range, and a ``probability`` outside 0 to 1.
    """

    factors: tuple[float, ...] = (0.9, 1.0, 1.1)
    probability: float = 1.0

    def __post_init__(self) -> None:
        check_probability(self.probability)
        if not self.factors or not all(_RANGE[0] <= factor <= _RANGE[1] for factor in self.factors):
            raise InvalidArgumentError(f"factors = {self.factors} are not all within {_RANGE}", "(0.9, 1.0, 1.1)")

    def __call__(self, batch: Array, lengths: Array, generator: np.random.Generator) -> tuple[Array, Array]:
        """The batch at other speeds, and its new lengths."""
        ratios = [Fraction(factor).limit_denominator(_SHORTEST) for factor in self.factors]
        which = generator.integers(len(ratios), size=len(batch))
        which[generator.random(len(batch)) >= self.probability] = -1  # as they are
        changed = lengths.copy()
        for i, ratio in enumerate(ratios):
            # scipy gives as many samples: rounded up.
            changed[which == i] = -(-lengths[which == i] * ratio.denominator // ratio.numerator)
        result: Array = np.zeros((len(batch), int(changed.max(initial=0))), dtype=np.float32)
        for i in set(which.tolist()):
            rows = np.flatnonzero(which == i)
            made = batch[rows, : int(lengths[rows].max())]
            if i >= 0 and ratios[i] != 1:
                made = _resampled(made, ratios[i])
            result[rows, : made.shape[1]] = made[:, : result.shape[1]]
        return result * inside(changed, result.shape[1]), changed


def _resampled(batch: Array, speed: Fraction) -> Array:
    try:
        from scipy.signal import resample_poly
    except ImportError as error:
        raise UnsupportedError("other speeds need scipy", "pip install scipy") from error
    made: Array = resample_poly(batch, speed.denominator, speed.numerator, axis=1)
    return made.astype(np.float32, copy=False)
