"""The share of memory in use, and the thresholds of warnings and clean-ups."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from .memory_summary import used_of
from .monitor_reader import MemoryReader

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
    """The fullest memory: a GPU's place (-1: the host), bytes that are left, bytes in all."""

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
    """The used share of the fullest GPU, of the host's memory where there is no GPU that answers.

    What PyTorch holds in its cache and does not use is not used memory: it is what the next allocation is taken from.
    Its counters are those of this process. Where they are known of any GPU, only such GPUs count: of a card that
    another process trains on, the cache cannot be distinguished from what is used.
    """

    def __init__(self, monitor: MemoryReader, clock: Callable[[], float] = time.monotonic) -> None:
        self._monitor, self._clock = monitor, clock
        self._watched: tuple[tuple[int, int], ...] = ()  # place, bytes in all
        self._again = 0.0

    def share(self) -> float | None:
        """The cheap way: no objects. None where nothing is known."""
        if self._clock() >= self._again:
            self._find()
        highest = None
        if self._watched:
            room = self._monitor.headroom()
            for place, total in self._watched:
                left = room[place]
                if left is not None:
                    share = 1.0 - left / total
                    if highest is None or share > highest:
                        highest = share
        return self._monitor.host_fraction() if highest is None else highest

    def fullest(self) -> PeakUse | None:
        """What ``share`` is the share of."""
        room = self._monitor.headroom()
        known = [(place, room[place], total) for place, total in self._watched]
        found = [PeakUse(place, left, total) for place, left, total in known if left is not None]
        if found:
            return max(found, key=lambda each: each.share)
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
