"""The memory peaks of all processes of a training, and their summary.

No collective is used: it would hang where a process has failed. Each process removes its own file when training begins,
and writes it when training ends without an error; rank 0 then waits a few seconds for the other files. All ranks have
completed a step in between, so that the files it finds belong to this run.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .._core.files import read_object, write_whole
from .._core.output import LINES, first_of, listed
from .._core.records import from_file
from .._core.render import GIB

if TYPE_CHECKING:
    from .memory_monitor import MemoryMonitor
    from .telemetry import MemorySnapshot


_WAIT_S, _AGAIN_S = 5.0, 0.05
_NAME = "memory-rank"
_HINT = "remove it, or report without it"


@dataclass(frozen=True)
class RankPeaks:
    """The memory peaks of one process, in bytes; None where unknown.

    Attributes:
        rank: The rank of the process.
        device: The GPU as its process numbers it, such as ``"cuda:0"``; ``""`` without one.
        allocated: The bytes of PyTorch's tensors on the GPU.
        reserved: The bytes of PyTorch's allocator on the GPU.
        rss: The bytes of host memory.
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
    """The files in ``folder`` of a training with ``size`` processes, as seen by process ``rank``."""

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
        """Report the peaks of this process, from its ``monitor`` if it has one.

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
    """The peaks that all processes but the first left in ``folder``. Raises like ``_read``."""
    return tuple(sorted(map(_read, folder.glob(f"{_NAME}*.json")), key=lambda peaks: peaks.rank))


def own_peaks(rank: int, monitor: MemoryMonitor | None = None) -> RankPeaks:
    """The peaks of this process since it began, or since its ``monitor`` did, which resets PyTorch's peaks."""
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
    """The memory peaks of a training run, in bytes; None where nothing could be read.

    Attributes:
        gpu_peaks: The highest use of each GPU.
        gpu_totals: The memory of each GPU.
        host_peak: The highest use of host memory.
        host_total: The host memory, within the limit of a container.
        samples: The number of samples.
        errors: The number of failed readings.
        warnings: The number of warnings that were logged.
        clean_ups: How often garbage and PyTorch's cache were freed.
        problem: Why there was no monitor; ``""`` when there was one.
        ranks: The reported peaks of a training with several processes, in order of rank.
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
        peaks = [_used_of(*pair) for pair in [*pairs, ("host", self.host_peak, self.host_total)]]
        counts = f"{self.warnings} warnings, {self.clean_ups} clean-ups, {self.errors} failed of {self.samples} samples"
        return "; ".join([f"peak memory: {listed(peaks, shown=LINES)}", counts, *first_of(self.ranks)])


def summarised(
    shot: MemorySnapshot, warnings: int, clean_ups: int, problem: str, ranks: tuple[RankPeaks, ...]
) -> MemorySummary:
    """The peaks as of a monitor's last reading, with the counts of warnings and clean-ups."""
    return MemorySummary(
        tuple(gpu.peak for gpu in shot.gpus), tuple(gpu.total for gpu in shot.gpus), shot.host_peak, shot.host_total,
        shot.samples, shot.errors, warnings, clean_ups, problem, ranks,
    )  # fmt: skip


def _used_of(name: str, used: int | None, total: int | None) -> str:
    """``GPU 0 9.0 of 10.0 GiB (90%)``."""
    if used is None or not total:
        return f"{name} unknown"
    return f"{name} {used / GIB:.1f} of {total / GIB:.1f} GiB ({used / total:.0%})"
