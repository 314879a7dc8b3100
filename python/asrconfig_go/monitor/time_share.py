"""What part of the time something took."""

from __future__ import annotations

import time
from collections.abc import Callable


class TimeShare:
    """By how many seconds ``spent`` grew in each second since it was last asked; None where that is not known."""

    def __init__(self, spent: Callable[[], float | None], clock: Callable[[], float] = time.perf_counter) -> None:
        self._spent, self._clock = spent, clock
        self._at, self._before = clock(), spent() or 0.0

    def __call__(self) -> float | None:
        """Ask, and begin again."""
        now, spent = self._clock(), self._spent()
        passed = now - self._at
        if spent is None or passed <= 0:
            return None
        share = (spent - self._before) / passed
        self._at, self._before = now, spent
        return share
