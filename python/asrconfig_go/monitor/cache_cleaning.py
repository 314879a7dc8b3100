"""Collects garbage and empties PyTorch's cache, no more often than it helps."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable

from .._base.out_of_memory import free_memory
from ..view.units import GIB
from .thresholds import PeakUse

_HELPED = 0.01  # of the memory, that must have come back
_LONGEST_S = 3600.0


class CleanUps:
    """At most one clean-up in ``cooldown_s`` seconds; twice as long after each that did not help, up to an hour.

    What came back is only seen some samples of the monitor later, ``settle_s`` seconds.
    """

    def __init__(self, cooldown_s: float, settle_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._shortest, self._settle, self._clock = cooldown_s, settle_s, clock
        self._cooldown = cooldown_s
        self._at: float | None = None
        self._before: PeakUse | None = None
        self.count = 0

    @property
    def due(self) -> bool:
        """Whether the last one is long enough ago and was checked."""
        return self._before is None and (self._at is None or self._clock() - self._at >= self._cooldown)

    @property
    def to_be_checked(self) -> bool:
        """Whether one has been done whose effect shows by now."""
        return self._before is not None and self._at is not None and self._clock() - self._at >= self._settle

    def run(self, before: PeakUse) -> None:
        """Clean up; ``before`` is how full memory is."""
        give_back_memory()
        self._before, self._at = before, self._clock()
        self.count += 1

    def check(self, after: PeakUse | None) -> str:
        """Describe what the last one gained."""
        before, self._before = self._before, None
        if before is None or after is None or after.place != before.place:
            return "the gain of the clean-up is unknown"
        back = after.left - before.left
        if back >= _HELPED * before.total:
            self._cooldown = self._shortest
            return f"the clean-up brought {back / GIB:.1f} GiB back: {after}"
        self._cooldown = min(max(_LONGEST_S, self._shortest), 2 * self._cooldown)
        return (
            f"the clean-up did not help, this memory is in use: {after}; the next one comes in {self._cooldown:.0f} s "
            "at the earliest. Smaller micro-batches or gradient checkpointing would help"
        )


def give_back_memory() -> None:
    """Collect garbage, and return the GPU's cached memory to the driver."""
    if "torch" in sys.modules:  # where it was never imported, it holds nothing
        free_memory()
    else:
        gc.collect()
