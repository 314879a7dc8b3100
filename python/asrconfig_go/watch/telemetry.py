"""What a monitor reads and records: memory now, PyTorch's own counters, the run log, and the memory of all processes.

Sizes are bytes; None is not known. Times of a run log are seconds from the monitor's start (monotonic) unless a name
says otherwise. Long runs are kept at a lower resolution, never truncated.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, Protocol

from .._core.declared import RUN_LOG_VERSION
from .._core.files import read_object, write_whole
from .._core.output import LINES, first_of, listed
from .._core.records import from_file, from_json
from .._core.render import GIB
from ..errors import CorruptFileError, InternalError, VersionMismatchError
from .watch_records import RunLogRecord

LOOK_AGAIN = 50  # steps between two looks at which devices this process uses
_WAIT_S, _AGAIN_S = 5.0, 0.05
_NAME = "memory-rank"
_HINT = "remove it, or report without it"
_Stats = dict[str, Any]  # nested by the binding, flat by torch.cuda.memory_stats


@dataclass(frozen=True, slots=True)
class GPUMemory:
    """One GPU in bytes, all processes and PyTorch's cache included. All None while the driver does not answer.

    ``allocated`` and ``reserved`` are PyTorch's of the last step, None where this process has reported none;
    ``headroom`` is what can still be allocated, unused cache included.
    """

    total: int | None
    used: int | None
    free: int | None
    peak: int | None
    allocated: int | None = None
    reserved: int | None = None
    headroom: int | None = None

    @property
    def fraction(self) -> float | None:
        """Used share, 0 to 1."""
        return self.used / self.total if self.used is not None and self.total else None


@dataclass(frozen=True, slots=True)
class MemorySnapshot:
    """One sample. Sizes are bytes, the container's limit applied; None where nothing could be read.

    ``time`` is the sample's wall clock in seconds since 1970; ``samples`` and ``errors`` count since the start.
    """

    time: float | None
    samples: int
    errors: int
    host_total: int | None
    host_used: int | None
    host_peak: int | None
    gpus: tuple[GPUMemory, ...]

    @property
    def host_fraction(self) -> float | None:
        """Used share of the host's memory, 0 to 1."""
        return self.host_used / self.host_total if self.host_used is not None and self.host_total else None


class Counters(NamedTuple):
    """Bytes of one device in this process; the peaks are since the reading before."""

    gpu: int
    allocated: int
    reserved: int
    peak_allocated: int
    peak_reserved: int


class TorchCounters:
    """Reads the devices that this process has memory on; none without PyTorch, or before CUDA is initialised.

    ``reset_peaks``: every reading lets PyTorch's peaks start again, so that a step's peak is its own. A
    ``torch.cuda.max_memory_allocated()`` of the user then counts from the last step; False leaves the peaks alone, and
    they are those since they were last reset.
    """

    def __init__(self, reset_peaks: bool = True) -> None:
        self.reset_peaks = reset_peaks
        self._devices: list[int] = []
        self._countdown = 0

    def read(self) -> list[Counters]:
        """The counters now, one entry per device in use."""
        cuda = getattr(sys.modules.get("torch"), "cuda", None)
        if cuda is None or not cuda.is_initialized():
            return []
        stats, reset = _functions(cuda)
        if self._countdown == 0:
            self._devices = [i for i in range(cuda.device_count()) if _counters(stats, i).reserved]
            self._countdown = LOOK_AGAIN
        self._countdown -= 1
        readings = [_counters(stats, device) for device in self._devices]
        if self.reset_peaks:
            for device in self._devices:
                reset(device)
        return readings


def _functions(cuda: ModuleType) -> tuple[Callable[[int], _Stats], Callable[[int], None]]:
    """The binding itself where there is one: ``torch.cuda.memory_stats`` sorts a hundred names at every call."""
    binding = sys.modules["torch"]._C
    if hasattr(binding, "_cuda_memoryStats") and hasattr(binding, "_cuda_resetPeakMemoryStats"):
        return binding._cuda_memoryStats, binding._cuda_resetPeakMemoryStats
    return cuda.memory_stats, cuda.reset_peak_memory_stats


def _counters(stats: Callable[[int], _Stats], device: int) -> Counters:
    counters = stats(device)
    if "allocated_bytes" in counters:
        allocated, reserved = counters["allocated_bytes"]["all"], counters["reserved_bytes"]["all"]
        return Counters(device, allocated["current"], reserved["current"], allocated["peak"], reserved["peak"])
    names = (f"{kind}_bytes.all.{value}" for value in ("current", "peak") for kind in ("allocated", "reserved"))
    return Counters(device, *(counters.get(name, 0) for name in names))


@dataclass(frozen=True, repr=False)
class RunLog(RunLogRecord):
    """A whole run as a monitor saw it; ``start_unix_nanos`` is the wall clock of time 0."""

    @classmethod
    def from_json(cls, data: dict[str, object]) -> RunLog:
        """A run log from its JSON object. Raises ``VersionMismatchError`` for one of another version."""
        version = data.get("version")
        if version != RUN_LOG_VERSION:
            raise VersionMismatchError(
                f"a run log of version {version!r}, this package reads {RUN_LOG_VERSION}",
                "read it with the version of asrconfig-go that wrote it",
            )
        try:
            return from_json(cls, data)
        except InternalError as error:
            raise CorruptFileError(
                f"this is not a run log: {error.message}", "name a file that a monitor saved"
            ) from error

    @classmethod
    def load(cls, path: str | Path) -> RunLog:
        """The run log that ``MemoryMonitor.save`` wrote. Raises ``NotFoundError`` and ``CorruptFileError``."""
        return cls.from_json(read_object(path, "run log", "name a file that a monitor saved"))

    def __repr__(self) -> str:
        return (
            f"RunLog({self.duration_s:.0f} s, {self.samples} samples, {len(self.gpus)} GPUs, "
            f"{len(self.steps.number)} steps, {len(self.events)} events, {len(self.alerts)} alerts)"
        )


class MonitorLike(Protocol):
    """Something that has a run log."""

    def run_log(self) -> RunLog:
        """What it saw."""


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
    """The files of a training's ``size`` processes in ``folder``, for the one with this ``rank``.

    No process waits for another by a collective: where one has failed, that would hang. Each process removes its own
    file when training begins, and writes it when training ends well; the first one then looks for the others', for some
    seconds at most. A step that all have made lies in between, so that what it finds is of this run.
    """

    def __init__(self, folder: Path, rank: int, size: int, wait_s: float = _WAIT_S) -> None:
        self._folder, self._rank, self._size, self._wait = folder, rank, size, wait_s

    def begin(self) -> None:
        """Remove the files that an earlier run left of this process, and of processes that no longer exist."""
        for path in self._folder.glob(f"{_NAME}*.json"):
            rank = path.stem.removeprefix(_NAME)
            gone = self._rank == 0 and rank.isdigit() and int(rank) >= self._size
            if gone or rank == str(self._rank):
                path.unlink(missing_ok=True)

    def end(self, monitor: MonitorLike | None = None) -> tuple[RankPeaks, ...]:
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


def own_peaks(rank: int, monitor: MonitorLike | None = None) -> RankPeaks:
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
        peaks = [_used_of(*pair) for pair in [*pairs, ("host", self.host_peak, self.host_total)]]
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


def _used_of(name: str, used: int | None, total: int | None) -> str:
    """``GPU 0 9.0 of 10.0 GiB (90%)``."""
    if used is None or not total:
        return f"{name} unknown"
    return f"{name} {used / GIB:.1f} of {total / GIB:.1f} GiB ({used / total:.0%})"
