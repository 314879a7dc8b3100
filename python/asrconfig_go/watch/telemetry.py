"""What a monitor reads and records: memory now, PyTorch's own counters, and the run log.

Sizes are bytes; None is not known. Times of a run log are seconds from the monitor's start (monotonic) unless a name
says otherwise. Long runs are kept at a lower resolution, never truncated.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from .._core import native
from .._core.declared import RUN_LOG_VERSION
from .._core.files import read_object
from .._core.records import from_json
from ..errors import AsrConfigError, CorruptFileError, InternalError, VersionMismatchError
from .watch_records import RunLogRecord

_ANOTHER = "report the run of another file, or train anew: the monitor writes it whole or not at all"
LOOK_AGAIN = 50  # steps between two looks at which devices this process uses


@dataclass(frozen=True, slots=True)
class GPUMemory:
    """The memory of one GPU, in bytes. All are None while the driver does not answer.

    Attributes:
        total: The memory of the GPU.
        used: The memory in use, of all processes and with PyTorch's cache.
        free: The memory that the driver has free.
        peak: The highest use since the monitor began.
        allocated: The memory of PyTorch's tensors at the last step; None where this process has reported no step.
        reserved: PyTorch's cache at the last step, with the tensors in it; None likewise.
        headroom: What training can still allocate, unused cache included.
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
        """The used share of the GPU's memory, 0 to 1; None where unknown."""
        return self.used / self.total if self.used is not None and self.total else None


@dataclass(frozen=True, slots=True)
class MemorySnapshot:
    """One sample. Sizes are bytes; None where nothing could be read.

    Attributes:
        time: The wall clock of the sample, in seconds since 1970.
        samples: The number of samples since the start.
        errors: The number of failed readings since the start.
        host_total: The host memory, within the limit of a container.
        host_used: The host memory in use.
        host_peak: The highest use of host memory since the start.
        gpus: The memory of each GPU.
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
        """The used share of the host's memory, 0 to 1; None where unknown."""
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
        if self._countdown == 0:
            self._devices = [i for i in range(cuda.device_count()) if _counters(cuda, i).reserved]
            self._countdown = LOOK_AGAIN
        self._countdown -= 1
        readings = [_counters(cuda, device) for device in self._devices]
        if self.reset_peaks:
            for device in self._devices:
                cuda.reset_peak_memory_stats(device)
        return readings


def _counters(cuda: ModuleType, device: int) -> Counters:
    counters = cuda.memory_stats_as_nested_dict(device)  # ``memory_stats`` sorts a hundred names at every call
    allocated, reserved = counters["allocated_bytes"]["all"], counters["reserved_bytes"]["all"]
    return Counters(device, allocated["current"], reserved["current"], allocated["peak"], reserved["peak"])


@dataclass(frozen=True, repr=False)
class RunLog(RunLogRecord):
    """A whole run as a monitor saw it; ``start_unix_nanos`` is the wall clock of time 0."""

    @classmethod
    def from_json(cls, data: dict[str, object]) -> RunLog:
        """Make a run log from its JSON object.

        Args:
            data: The object, as a file that ``MemoryMonitor.save`` wrote holds it.

        Returns:
            The run log.

        Raises:
            VersionMismatchError: The run log is of another version.
            CorruptFileError: The object is not a run log.
        """
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
        """Read the run log that ``MemoryMonitor.save`` wrote.

        Args:
            path: The file.

        Returns:
            The run log.

        Raises:
            NotFoundError: The file does not exist.
            CorruptFileError: The file is empty, truncated or not a run log.
            VersionMismatchError: The run log is of another version.
        """
        content = read_object(path, "run log", _ANOTHER)
        try:
            run_log = cls.from_json(content)
            native.call("runlog.check", {"run_log": content})
        except AsrConfigError as error:
            raise type(error)(f"{path}: {error.message}", error.hint) from error
        return run_log

    def __repr__(self) -> str:
        return (
            f"RunLog({self.duration_s:.0f} s, {self.samples} samples, {len(self.gpus)} GPUs, "
            f"{len(self.steps.number)} steps, {len(self.events)} events, {len(self.alerts)} alerts)"
        )
