"""The memory of a training: thresholds, clean-ups, peaks of all processes, the summary.

No process waits for another by a collective: where one has failed, that would hang. Each process removes its own file
when training begins, and writes it when training ends well; the first one then looks for the others', for some seconds
at most. A step that all have made lies in between, so that what it finds is of this run.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .._core.files import read_object, write_whole
from .._core.out_of_memory import free_memory
from .._core.output import LINES, first_of, listed
from .._core.records import from_file
from .._core.render import GIB

if TYPE_CHECKING:
    from .memory_monitor import MemoryMonitor, MemorySnapshot


_WAIT_S, _AGAIN_S = 5.0, 0.05
_NAME = "memory-rank"
_HINT = "remove it, or report without it"


@dataclass(frozen=True)
class RankPeaks:
    """The peaks of one process: bytes of PyTorch's tensors and of its allocator on its GPU, and of host memory.

    None where that is not known. ``device`` is the GPU's number in its process's view, "" without one.
    """

    rank: int
    device: str
    allocated: int | None
    reserved: int | None
    rss: int | None

    def __str__(self) -> str:
        parts = [("allocated", self.allocated), ("reserved", self.reserved), ("RAM", self.rss)]
        sizes = ", ".join(f"{name} {size / GIB:.1f} GiB" for name, size in parts if size is not None)
        return f"rank {self.rank}{f' ({self.device})' if self.device else ''}: {sizes or 'peaks unknown'}"


class RankFiles:
    """The files of a training's ``size`` processes in ``folder``, for the one with this ``rank``."""

    def __init__(self, folder: Path, rank: int, size: int, wait_s: float = _WAIT_S) -> None:
        self._folder, self._rank, self._size, self._wait = folder, rank, size, wait_s

    def begin(self) -> None:
        """Remove the files that an earlier run left of this process, and of processes that no longer exist."""
        for path in self._folder.glob(f"{_NAME}*.json"):
            rank = path.stem.removeprefix(_NAME)
            gone = self._rank == 0 and rank.isdigit() and int(rank) >= self._size
            if gone or rank == str(self._rank):
                path.unlink(missing_ok=True)

    def end(self, monitor: MemoryMonitor | None = None) -> tuple[RankPeaks, ...]:
        """Report the peaks of this process, by its ``monitor`` if it has one.

        The first process returns the peaks of all that reported in time, the others an empty tuple.
        """
        if self._size < 2:
            return ()
        peaks = own_peaks(self._rank, monitor)
        if self._rank:
            self._folder.mkdir(parents=True, exist_ok=True)
            write_whole(self._path(self._rank), json.dumps(asdict(peaks)).encode())
            return ()
        deadline = time.monotonic() + self._wait
        others = [self._path(rank) for rank in range(1, self._size)]
        while not all(path.exists() for path in others) and time.monotonic() < deadline:
            time.sleep(_AGAIN_S)
        return (peaks, *(_read(path) for path in others if path.exists()))

    def _path(self, rank: int) -> Path:
        return self._folder / f"{_NAME}{rank}.json"


def _read(path: Path) -> RankPeaks:
    """Raises ``CorruptFileError``, and ``NotFoundError`` for a file that cannot be opened."""
    return from_file(RankPeaks, read_object(path, "process's peaks", _HINT), path, _HINT)


def rank_peaks(folder: Path) -> tuple[RankPeaks, ...]:
    """What all processes but the first left in ``folder``. Raises as ``_read``."""
    return tuple(sorted(map(_read, folder.glob(f"{_NAME}*.json")), key=lambda peaks: peaks.rank))


def own_peaks(rank: int, monitor: MemoryMonitor | None = None) -> RankPeaks:
    """Those of this process: since it began, or since its ``monitor`` did, which lets PyTorch's peaks start again."""
    torch, device, allocated, reserved = sys.modules.get("torch"), "", None, None
    if torch is not None and torch.cuda.is_initialized():
        device = f"cuda:{torch.cuda.current_device()}"
        allocated, reserved = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
        if monitor is not None:
            steps = monitor.run_log().steps
            allocated = _highest(allocated, steps.peak_allocated_bytes)
            reserved = _highest(reserved, steps.peak_reserved_bytes)
    return RankPeaks(rank, device, allocated, reserved, _peak_rss())


def _highest(newest: int, before: Sequence[float | None]) -> int:
    return int(max([newest, *(size for size in before if size is not None)]))


def _peak_rss() -> int | None:
    try:
        import resource
    except ImportError:  # Windows
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


@dataclass(frozen=True)
class MemorySummary:
    """A training run's memory. Sizes are bytes, None where nothing could be read.

    ``errors`` counts failed samples; ``problem`` says why there was no monitor, ``""`` when there was one. ``ranks``
    are the peaks of every process of a training with several, in order of rank, as far as they were reported.
    """

    gpu_peaks: tuple[int | None, ...]
    gpu_totals: tuple[int | None, ...]
    host_peak: int | None
    host_total: int | None
    samples: int
    errors: int
    warnings: int
    clean_ups: int
    problem: str
    ranks: tuple[RankPeaks, ...] = ()

    def __str__(self) -> str:
        if self.problem:
            return f"memory was not watched: {self.problem}"
        pairs = [(f"GPU {i}", *pair) for i, pair in enumerate(zip(self.gpu_peaks, self.gpu_totals, strict=True))]
        peaks = [used_of(*pair) for pair in [*pairs, ("host", self.host_peak, self.host_total)]]
        counts = f"{self.warnings} warnings, {self.clean_ups} clean-ups, {self.errors} failed of {self.samples} samples"
        return "; ".join([f"peak memory: {listed(peaks, shown=LINES)}", counts, *first_of(self.ranks)])


def summarised(
    shot: MemorySnapshot, warnings: int, clean_ups: int, problem: str, ranks: tuple[RankPeaks, ...]
) -> MemorySummary:
    """The peaks of a monitor's last sample with what was done about them."""
    return MemorySummary(
        tuple(gpu.peak for gpu in shot.gpus), tuple(gpu.total for gpu in shot.gpus), shot.host_peak, shot.host_total,
        shot.samples, shot.errors, warnings, clean_ups, problem, ranks,
    )  # fmt: skip


def used_of(name: str, used: int | None, total: int | None) -> str:
    """``GPU 0 9.0 of 10.0 GiB (90%)``."""
    if used is None or not total:
        return f"{name} unknown"
    return f"{name} {used / GIB:.1f} of {total / GIB:.1f} GiB ({used / total:.0%})"


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
