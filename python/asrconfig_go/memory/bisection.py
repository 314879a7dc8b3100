"""The order of trials that finds the largest batch size in few of them."""

from __future__ import annotations

_AIMED = 8  # trials that follow predictions; after them the bracket is halved
_FARTHEST = 8  # times the largest measured size, for a prediction: one sample does not predict a hundred


class Bracket:
    """The largest size known to fit and the smallest known not to, from ``low`` to ``high``.

    ``start`` is a guess: it is tried first, and if it fits, the size above it. The memory of a size that fits, and the
    ``base`` bytes that all sizes need, predict by a straight line the size that reaches ``limit`` bytes; so after a
    start that does not fit, half of it is tried for its measurement. Without measurements (``limit`` None) the trials
    move away from the start by steps of 1, a sixteenth, a quarter and so on.
    """

    def __init__(self, low: int, high: int, start: int, limit: int | None = None) -> None:
        self.low, self.high, self.start = low, high, min(max(start, low), high)
        self.fits, self.fails, self.limit = low - 1, high + 1, limit
        self.trials = 0
        self._rising = self._falling = 0  # surprises in a row
        self._measured: list[tuple[int, int]] = []
        self._base = 0

    def next(self) -> int | None:
        """The size to try; None when the largest is known: ``fits``, which is below ``low`` when none fits."""
        lowest, highest = self.fits + 1, self.fails - 1
        if lowest > highest:
            return None
        aimed = self.start if not self.trials else self._aim()
        return min(max(aimed, lowest), highest)

    def note(self, size: int, fits: bool, peak: int | None = None, base: int | None = None) -> None:
        """Note the outcome of a trial; ``peak`` bytes, ``base`` of them independent of the size."""
        self.trials += 1
        if not fits:
            self.fails, self._falling, self._rising = size, self._falling + 1, 0
            return
        predicted = self._predicted()
        surprising = predicted is None or size > predicted
        self.fits, self._rising, self._falling = size, self._rising + 1 if surprising else 1, 0
        if peak is not None and base is not None:
            self._measured.append((size, peak))
            self._base = base

    def _aim(self) -> int:
        middle = (self.fits + self.fails) // 2
        closed = self.fits >= self.low and self.fails <= self.high
        if closed and self.trials >= _AIMED:
            return middle
        predicted = self._predicted()
        if predicted is not None:
            width = min(self.fails, _FARTHEST * self.fits) - self.fits
            lowest = self.fits + max(1, (1 << self._rising) // 4)
            return min(max(predicted, lowest), self.fails - _step(self._falling, width))
        if closed:
            return middle
        if self.fits >= self.low:
            return self.fits + _step(self._rising, self.start)
        if self.limit is not None:
            return self.fails // 2
        return max(self.fails - _step(self._falling, self.start), self.fails // 2)

    def _predicted(self) -> int | None:
        """The largest size by a line through the two largest measurements, or through one and the base."""
        if not self._measured or self.limit is None:
            return None
        (size, peak), (before, less) = (*reversed(self._measured), (0, self._base))[:2]
        if 8 * (size - before) < size:  # too near for a slope
            before, less = 0, self._base
        slope = (peak - less) / (size - before)
        if slope <= 0:
            return _FARTHEST * size
        return int(min(size + (self.limit - peak) / slope, _FARTHEST * size))


def _step(repeated: int, width: int) -> int:
    """Distance to the next trial, after a number of trials with the same outcome: 1, width/16, width/4, …"""
    return 1 if repeated < 2 else int(max(2 ** (repeated - 1), width * 4 ** (repeated - 1) // 64))
