"""The share of memory in use, and the thresholds of warnings and clean-ups."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .memory_summary import used_of

if TYPE_CHECKING:
    from .memory_monitor import MemoryMonitor

_TOTALS_EVERY_S = 1.0


class Crossing:
    """True once when a share reaches ``threshold``, and again only after it fell ``hysteresis`` below it."""

    __slots__ = ("armed", "rearm_below", "threshold")

    def __init__(self, threshold: float, hysteresis: float) -> None:
        self.threshold, self.rearm_below, self.armed = threshold, threshold - hysteresis, True

    def reached(self, share: float) -> bool:
        """Whether this is the crossing."""
        if self.armed:
            if share >= self.threshold:
                self.armed = False
                return True
        elif share < self.rearm_below:
            self.armed = True
        return False


@dataclass(frozen=True, slots=True)
class PeakUse:
    """The fullest memory: a GPU's index (-1: the host), its free bytes, and all its bytes."""

    place: int
    left: int
    total: int

    @property
    def share(self) -> float:
        """Used share, 0 to 1."""
        return 1.0 - self.left / self.total

    def __str__(self) -> str:
        name = "host" if self.place < 0 else f"GPU {self.place}"
        return used_of(name, self.total - self.left, self.total)


class MemoryUse:
    """The used share of the fullest GPU, or of the host's memory where no GPU answers.

    Memory that PyTorch caches without using it counts as free. PyTorch's counters are those of this process: where any
    GPU has them, only such GPUs count, as another process's cache cannot be told apart from used memory.
    """

    def __init__(self, monitor: MemoryMonitor, clock: Callable[[], float] = time.monotonic) -> None:
        self._monitor, self._clock = monitor, clock
        self._watched: tuple[tuple[int, int], ...] = ()  # place, bytes in all
        self._again = 0.0

    def share(self) -> float | None:
        """The share in use; None where nothing is known."""
        if self._clock() >= self._again:
            self._find()
        room = self._monitor.headroom() if self._watched else ()
        shares = [1.0 - left / total for place, total in self._watched if (left := room[place]) is not None]
        return max(shares) if shares else self._monitor.host_fraction()

    def fullest(self) -> PeakUse | None:
        """What ``share`` is the share of."""
        room = self._monitor.headroom()
        gpus = [(place, room[place], total) for place, total in self._watched]
        answering = [PeakUse(place, headroom, total) for place, headroom, total in gpus if headroom is not None]
        if answering:
            return max(answering, key=lambda use: use.share)
        shot = self._monitor.read()
        if shot.host_used is None or not shot.host_total:
            return None
        return PeakUse(-1, shot.host_total - shot.host_used, shot.host_total)

    def _find(self) -> None:
        """Which GPUs count; a GPU may answer late, and PyTorch begin to use it."""
        self._again = self._clock() + _TOTALS_EVERY_S
        gpus = [(place, gpu) for place, gpu in enumerate(self._monitor.read().gpus) if gpu.total]
        own = [(place, gpu) for place, gpu in gpus if gpu.allocated is not None]
        self._watched = tuple((place, gpu.total) for place, gpu in own or gpus if gpu.total)
