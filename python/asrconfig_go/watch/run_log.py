"""The run log of a monitor as plain data: the JSON of the library's run log, field by field.

Sizes are bytes, times are seconds from the monitor's start (monotonic) unless a name says otherwise; None is not known.
Long runs are kept at a lower resolution, never truncated.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .._core.files import read_object
from .._core.records import from_json
from ..errors import CorruptFileError, InternalError, VersionMismatchError

RUN_LOG_VERSION = 1


@dataclass(frozen=True)
class RunLogGPU:
    """What does not change about a GPU; 0 and "" where the driver does not report it."""

    name: str
    uuid: str
    total_bytes: int
    power_limit_w: float
    max_clock_mhz: float
    mig: bool


@dataclass(frozen=True)
class RunLogHost:
    """What does not change about the host, a container's limits applied; 0 when unknown."""

    total_bytes: int
    cpus: int
    shm_total_bytes: int
    contained: bool


@dataclass(frozen=True)
class MemorySeries:
    """The fast series: one entry per point, the highest value of the samples that a point covers."""

    times_s: tuple[float, ...]
    samples_a_point: int
    host_used_bytes: tuple[float | None, ...]
    gpu_used_bytes: tuple[tuple[float | None, ...], ...]


@dataclass(frozen=True)
class GPUActivitySeries:
    """The slow series of one GPU. Shares are 0 to 1; ``throttle`` has bits: 1 power, 2 heat, 4 brake, 8 a setting."""

    utilization: tuple[float | None, ...]
    memory_busy: tuple[float | None, ...]
    sm_active: tuple[float | None, ...]
    tensor_active: tuple[float | None, ...]
    power_w: tuple[float | None, ...]
    temperature_c: tuple[float | None, ...]
    clock_mhz: tuple[float | None, ...]
    throttle: tuple[float | None, ...]
    pcie_received_bytes_s: tuple[float | None, ...]
    pcie_sent_bytes_s: tuple[float | None, ...]
    nvlink_bytes_s: tuple[float | None, ...]
    ecc_uncorrected: tuple[float | None, ...]
    others_bytes: tuple[float | None, ...]


@dataclass(frozen=True)
class ActivitySeries:
    """The slow series, about one entry a second: the mean of rates and shares, the highest of bytes."""

    times_s: tuple[float, ...]
    cpu_share: tuple[float | None, ...]
    tree_cpu_share: tuple[float | None, ...]
    busiest_core: tuple[float | None, ...]
    host_available_bytes: tuple[float | None, ...]
    swap_used_bytes: tuple[float | None, ...]
    tree_rss_bytes: tuple[float | None, ...]
    workers_rss_bytes: tuple[float | None, ...]
    shm_used_bytes: tuple[float | None, ...]
    disk_read_bytes_s: tuple[float | None, ...]
    disk_written_bytes_s: tuple[float | None, ...]
    net_received_bytes_s: tuple[float | None, ...]
    net_sent_bytes_s: tuple[float | None, ...]
    gpus: tuple[GPUActivitySeries, ...]


@dataclass(frozen=True)
class StepSeries:
    """One entry per reported step; of long runs one for several, with the highest sizes and the sum of the times."""

    number: tuple[int, ...]
    times_s: tuple[float, ...]
    kind: tuple[str, ...]
    covers: tuple[int, ...]
    spent_s: tuple[float | None, ...]
    waited_s: tuple[float | None, ...]
    audio_s: tuple[float | None, ...]
    padded_s: tuple[float | None, ...]
    longest_s: tuple[float | None, ...]
    arithmetic_s: tuple[float | None, ...]
    gpu: tuple[int, ...]
    allocated_bytes: tuple[float | None, ...]
    reserved_bytes: tuple[float | None, ...]
    peak_allocated_bytes: tuple[float | None, ...]
    peak_reserved_bytes: tuple[float | None, ...]
    headroom_bytes: tuple[float | None, ...]


@dataclass(frozen=True)
class Event:
    """Something that happened once; ``gpu`` is -1 for none."""

    at_s: float
    kind: str
    gpu: int
    text: str


@dataclass(frozen=True)
class Alert:
    """A warning of what will happen, or has begun to; ``gpu`` is -1 for the host, ``cleared_s`` None while it holds."""

    id: int
    at_s: float
    kind: str
    gpu: int
    severity: str
    since_step: int | None
    since_s: float | None
    bytes_per_step: float | None
    bytes_per_s: float | None
    steps_left: float | None
    seconds_left: float | None
    text: str
    advice: str
    cleared_s: float | None


@dataclass(frozen=True)
class GPUActivity:
    """What one GPU did last, in the units of ``GPUActivitySeries``."""

    utilization: float | None
    memory_busy: float | None
    sm_active: float | None
    tensor_active: float | None
    power_w: float | None
    temperature_c: float | None
    clock_mhz: float | None
    throttle: float | None
    pcie_received_bytes_s: float | None
    pcie_sent_bytes_s: float | None
    nvlink_bytes_s: float | None
    ecc_uncorrected: float | None
    others_bytes: float | None


@dataclass(frozen=True)
class Activity:
    """The newest slow reading, in the units of ``ActivitySeries``; ``at_s`` is None before the first."""

    at_s: float | None
    cpu_share: float | None
    tree_cpu_share: float | None
    busiest_core: float | None
    host_available_bytes: float | None
    swap_used_bytes: float | None
    tree_rss_bytes: float | None
    workers_rss_bytes: float | None
    shm_used_bytes: float | None
    disk_read_bytes_s: float | None
    disk_written_bytes_s: float | None
    net_received_bytes_s: float | None
    net_sent_bytes_s: float | None
    gpus: tuple[GPUActivity, ...]


@dataclass(frozen=True, repr=False)
class RunLog:
    """A whole run as a monitor saw it; ``start_unix_nanos`` is the wall clock of time 0."""

    version: int
    start_unix_nanos: int
    duration_s: float
    interval_s: float
    samples: int
    errors: int
    gpus: tuple[RunLogGPU, ...]
    host: RunLogHost
    memory: MemorySeries
    activity: ActivitySeries
    steps: StepSeries
    events: tuple[Event, ...]
    alerts: tuple[Alert, ...]

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
