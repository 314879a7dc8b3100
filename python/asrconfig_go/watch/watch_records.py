"""Records of the library's answers, field by field; written by build/generate from their declarations in Go."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """One thing that held a run back, with what shows it and what to change."""

    kind: str
    """The rule: ``"loader"``, ``"small_batch"``, …"""
    severity: str
    """``"critical"``, ``"warn"`` or ``"info"``."""
    title: str
    """What is the case."""
    evidence: str
    """The figures that show it, and over which steps or time."""
    change: str
    """The one thing to change."""
    setting: str
    """That change for programs: an argument of TrainingArguments; ``""`` for none."""
    value: str
    """And its new value."""


@dataclass(frozen=True)
class Readings:
    """What a monitor saw during a benchmark's blocks of steps; None where it read nothing."""

    gpu_use: float | None = None
    """Mean share of the time that the busiest GPU computed."""
    gpu_memory_bytes: float | None = None
    gpu_total_bytes: float | None = None
    ram_bytes: float | None = None
    """Of the training's processes."""


@dataclass(frozen=True)
class MemoryUse:
    """How full a memory is: what PyTorch's cache holds unused counts as free."""

    gpu: int
    """-1: the host."""
    headroom_bytes: float
    """What counts as free."""
    total_bytes: float


@dataclass(frozen=True)
class MonitorMessage:
    """What a training is to be told."""

    severity: str
    """``"critical"``, ``"warn"`` or ``"info"``."""
    text: str


@dataclass(frozen=True)
class MemoryCheck:
    """What follows from how full memory is, and from the forecasts."""

    fullest: MemoryUse | None
    """None where nothing could be read."""
    clean_up: bool
    """Garbage and PyTorch's cache are to be freed now."""
    messages: tuple[MonitorMessage, ...]
    """Those that are new since the check before."""
    warnings: int
    """Alerts since the start."""
    clean_ups: int
    """Since the start."""


@dataclass(frozen=True)
class GPUHistory:
    """The memory of one GPU over time."""

    total_bytes: int
    """0 when it never answered."""
    used_bytes: tuple[float | None, ...]


@dataclass(frozen=True)
class MemoryHistory:
    """What a monitor has seen: one entry per point, and the highest value of the samples that it covers.

    Sizes are bytes; None where nothing could be read.
    """

    start_unix_nanos: int
    """Wall clock of time 0."""
    times_s: tuple[float, ...]
    """Seconds from the start to a point's first sample, rising."""
    samples_a_point: int
    """Samples that a point covers; the last one may cover fewer."""
    host_total_bytes: int
    """0 when the host never answered."""
    host_used_bytes: tuple[float | None, ...]
    gpus: tuple[GPUHistory, ...]


@dataclass(frozen=True)
class GPUActivitySeries:
    """The slow series of one GPU. Shares are 0 to 1."""

    utilization: tuple[float | None, ...]
    """Share of the time that a kernel ran, 0 to 1."""
    memory_busy: tuple[float | None, ...]
    """Share of the time that its memory was read or written."""
    sm_active: tuple[float | None, ...]
    """Mean over multiprocessors of the share of the time that they had work; from Hopper on."""
    tensor_active: tuple[float | None, ...]
    """Share of the time that tensor cores computed; from Hopper on."""
    power_w: tuple[float | None, ...]
    temperature_c: tuple[float | None, ...]
    clock_mhz: tuple[float | None, ...]
    throttle: tuple[float | None, ...]
    """Bits of why the clock is held back: 1 power, 2 heat, 4 brake, 8 a setting."""
    pcie_received_bytes_s: tuple[float | None, ...]
    pcie_sent_bytes_s: tuple[float | None, ...]
    nvlink_bytes_s: tuple[float | None, ...]
    ecc_uncorrected: tuple[float | None, ...]
    """Errors since the driver's start."""
    others_bytes: tuple[float | None, ...]
    """Memory of other processes on the same card."""


@dataclass(frozen=True)
class GPUActivity:
    """The newest reading, in the units of ``GPUActivitySeries``."""

    utilization: float | None
    """Share of the time that a kernel ran, 0 to 1."""
    memory_busy: float | None
    """Share of the time that its memory was read or written."""
    sm_active: float | None
    """Mean over multiprocessors of the share of the time that they had work; from Hopper on."""
    tensor_active: float | None
    """Share of the time that tensor cores computed; from Hopper on."""
    power_w: float | None
    temperature_c: float | None
    clock_mhz: float | None
    throttle: float | None
    """Bits of why the clock is held back: 1 power, 2 heat, 4 brake, 8 a setting."""
    pcie_received_bytes_s: float | None
    pcie_sent_bytes_s: float | None
    nvlink_bytes_s: float | None
    ecc_uncorrected: float | None
    """Errors since the driver's start."""
    others_bytes: float | None
    """Memory of other processes on the same card."""


@dataclass(frozen=True)
class ActivitySeries:
    """The slow series, about one entry a second.

    A point is the mean of what it covers for rates and shares, the highest for bytes and temperatures, all bits for
    throttling.
    """

    times_s: tuple[float, ...]
    cpu_share: tuple[float | None, ...]
    """Share of all cores that the process may use, 0 to 1."""
    tree_cpu_share: tuple[float | None, ...]
    """Share of the same cores that this process and its descendants use."""
    busiest_core: tuple[float | None, ...]
    """Its share of the time, 0 to 1."""
    host_available_bytes: tuple[float | None, ...]
    """The lowest of what a point covers."""
    swap_used_bytes: tuple[float | None, ...]
    tree_rss_bytes: tuple[float | None, ...]
    """Of this process and its descendants."""
    workers_rss_bytes: tuple[float | None, ...]
    """Of the descendants alone."""
    shm_used_bytes: tuple[float | None, ...]
    disk_read_bytes_s: tuple[float | None, ...]
    disk_written_bytes_s: tuple[float | None, ...]
    net_received_bytes_s: tuple[float | None, ...]
    net_sent_bytes_s: tuple[float | None, ...]
    gpus: tuple[GPUActivitySeries, ...]


@dataclass(frozen=True)
class Activity:
    """The newest reading, in the units of ``ActivitySeries``."""

    at_s: float | None
    """None before the first."""
    cpu_share: float | None
    """Share of all cores that the process may use, 0 to 1."""
    tree_cpu_share: float | None
    """Share of the same cores that this process and its descendants use."""
    busiest_core: float | None
    """Its share of the time, 0 to 1."""
    host_available_bytes: float | None
    """The lowest of what a point covers."""
    swap_used_bytes: float | None
    tree_rss_bytes: float | None
    """Of this process and its descendants."""
    workers_rss_bytes: float | None
    """Of the descendants alone."""
    shm_used_bytes: float | None
    disk_read_bytes_s: float | None
    disk_written_bytes_s: float | None
    net_received_bytes_s: float | None
    net_sent_bytes_s: float | None
    gpus: tuple[GPUActivity, ...]


@dataclass(frozen=True)
class Alert:
    """A warning of what will happen, or has begun to happen. Fields that do not apply to its kind are None."""

    id: int
    """From 1, rising."""
    at_s: float
    kind: str
    gpu: int
    """-1: the host."""
    severity: str
    """``"warn"`` or ``"critical"``."""
    since_step: int | None
    since_s: float | None
    bytes_per_step: float | None
    bytes_per_s: float | None
    steps_left: float | None
    seconds_left: float | None
    text: str
    """What it warns of, with its numbers."""
    advice: str
    """One concrete change."""
    cleared_s: float | None
    """When it no longer held; None while it does."""


@dataclass(frozen=True)
class Event:
    """Something that happened once."""

    at_s: float
    kind: str
    gpu: int
    """-1: none."""
    text: str
    """A sentence without a full stop."""


@dataclass(frozen=True)
class RunLogGPU:
    """What does not change about a GPU; 0 and ``""`` where the driver does not report it."""

    name: str
    uuid: str
    total_bytes: int
    """0 when it never answered."""
    power_limit_w: float
    max_clock_mhz: float
    """Of the multiprocessors."""
    mig: bool


@dataclass(frozen=True)
class RunLogHost:
    """What does not change about the host. Limits of a container are applied; 0 when unknown."""

    total_bytes: int
    cpus: int
    shm_total_bytes: int
    """Of /dev/shm."""
    contained: bool
    """The total is a container's limit."""


@dataclass(frozen=True)
class MemorySeries:
    """The fast series: one entry per point, the highest value of the samples that a point covers."""

    times_s: tuple[float, ...]
    """Time of each point's first sample, rising."""
    samples_a_point: int
    """Samples that a point covers."""
    host_used_bytes: tuple[float | None, ...]
    gpu_used_bytes: tuple[tuple[float | None, ...], ...]


@dataclass(frozen=True)
class StepSeries:
    """Has one entry per optimizer step, evaluation batch or checkpoint that was reported.

    Of long runs every n-th is kept, with the highest sizes, the sum of the times and the largest batch of those
    between.
    """

    number: tuple[int, ...]
    times_s: tuple[float, ...]
    """When they ended."""
    kind: tuple[str, ...]
    """``"train"``, ``"evaluation"`` or ``"checkpoint"``."""
    covers: tuple[int, ...]
    """Steps in this entry."""
    spent_s: tuple[float | None, ...]
    """Time since the step before."""
    waited_s: tuple[float | None, ...]
    """The part of it that was spent waiting for the loader."""
    audio_s: tuple[float | None, ...]
    """Seconds of audio without padding."""
    padded_s: tuple[float | None, ...]
    longest_s: tuple[float | None, ...]
    """Length of the longest clip."""
    arithmetic_s: tuple[float | None, ...]
    """Time that the model's arithmetic takes at the GPU's published rate."""
    gpu: tuple[int, ...]
    """-1: none."""
    allocated_bytes: tuple[float | None, ...]
    reserved_bytes: tuple[float | None, ...]
    peak_allocated_bytes: tuple[float | None, ...]
    """Since the step before."""
    peak_reserved_bytes: tuple[float | None, ...]
    headroom_bytes: tuple[float | None, ...]


@dataclass(frozen=True)
class RunLogRecord:
    """A whole run as a monitor saw it. Long runs are kept at a lower resolution, never truncated."""

    version: int
    start_unix_nanos: int
    """Wall clock of time 0."""
    duration_s: float
    """To the newest sample."""
    interval_s: float
    """Of the sampler."""
    samples: int
    errors: int
    """Failed readings."""
    gpus: tuple[RunLogGPU, ...]
    host: RunLogHost
    memory: MemorySeries
    activity: ActivitySeries
    steps: StepSeries
    events: tuple[Event, ...]
    alerts: tuple[Alert, ...]


@dataclass(frozen=True)
class Band:
    """A stretch of time that an ``"evaluation"``, a ``"checkpoint"`` or a ``"gap"`` without samples took."""

    begin_s: float
    end_s: float
    kind: str


@dataclass(frozen=True)
class ComparedFigure:
    """A figure of two runs, A and B; None where it is not known. ``ratio`` is B over A."""

    key: str
    name: str
    unit: str
    """``"bytes"``, ``"share"``, ``"s"``, ``"Wh"``, ``"count"``, or ``""`` for what its name says."""
    a: float | None
    b: float | None
    ratio: float | None


@dataclass(frozen=True)
class GPUFigures:
    """The figures of one GPU: bytes, watts, degrees Celsius.

    Shares are 0 to 1; means are over time. None: never measured.
    """

    label: str
    name: str
    total_bytes: float | None
    used_mean_bytes: float | None
    used_peak_bytes: float | None
    used_peak_at_s: float | None
    allocated_peak_bytes: float | None
    reserved_peak_bytes: float | None
    headroom_lowest_bytes: float | None
    """At the peak of a step; what PyTorch's cache holds unused counts as free, where its counters are known."""
    headroom_lowest_at_s: float | None
    others_peak_bytes: float | None
    utilization: float | None
    memory_busy: float | None
    sm_active: float | None
    tensor_active: float | None
    power_w: float | None
    energy_wh: float | None
    temperature_peak_c: float | None
    clock_mhz: float | None
    throttled: dict[str, float]
    """Share of time that each reason held the clock back."""


@dataclass(frozen=True)
class HostFigures:
    """The figures of one machine: bytes, bytes a second, shares of 0 to 1. None: never measured."""

    label: str
    total_bytes: float | None
    cpus: int
    contained: bool
    used_peak_bytes: float | None
    available_lowest_bytes: float | None
    tree_rss_peak_bytes: float | None
    workers_rss_peak_bytes: float | None
    swap_peak_bytes: float | None
    shm_total_bytes: float | None
    shm_peak_bytes: float | None
    cpu_share: float | None
    tree_cpu_share: float | None
    busiest_core: float | None
    disk_read_bytes_s: float | None
    disk_written_bytes_s: float | None
    net_received_bytes_s: float | None
    net_sent_bytes_s: float | None


@dataclass(frozen=True)
class Moment:
    """Something that happened once."""

    at_s: float
    kind: str
    where: str
    """The label of a GPU, or ``""``."""
    text: str


@dataclass(frozen=True)
class StepFigures:
    """Optimizer steps, evaluation batches and checkpoints, with the seconds that they took."""

    train: int
    """Optimizer steps."""
    evaluation: int
    checkpoint: int
    first: int | None
    """Number of the first optimizer step."""
    last: int | None
    """Number of the last optimizer step."""
    train_s: float | None
    evaluation_s: float | None
    checkpoint_s: float | None
    steps_per_s: float | None
    """Optimizer steps a second, over the time of training steps alone."""
    audio_rate: float | None
    """Seconds of audio a second, over the same time."""
    padding: float | None
    """Share of computed audio that is padding."""
    waited: float | None
    """Share of time that steps waited for the loader."""
    model_flops_utilization: float | None
    """Share of the time of training steps that the model's arithmetic takes at the GPU's published rate."""
    longest_clip_s: float | None
