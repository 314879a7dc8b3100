"""Records of the library's answers, field by field; written by build/generate from their declarations in Go."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LengthBucket:
    """A range of durations, and the micro-batch that fits its longest clip."""

    up_to_s: float
    """Seconds of its longest clip."""
    clips: int
    micro_batch: int | None
    """None where memory is not known."""
    audio_s: float


@dataclass(frozen=True)
class BatchingStrategy:
    """What one epoch costs in one order of clips, with one kind of split."""

    order: str
    """``"random"``, ``"grouped"`` (as group_by_length of transformers), ``"stratified"`` or ``"bucketed"``: see
    StepSampler.
    """
    split: str
    """``"fixed"`` (one size for all, or for a bucket) or ``"optimal"`` (the cheapest that fits, as the guard splits).
    """
    micro_batch: int | None
    """The size where there is one for all."""
    micro_batches: int
    """Of all processes, as the steps."""
    steps: int
    padded_s: float
    """Seconds that the model computes: clips × the longest of them, over all micro-batches."""
    padding: float
    """The share of them that is not audio."""
    use: float
    """Mean over micro-batches of clips / clips that would fit at that length."""
    use_by_time: float
    """The same, weighted by what each micro-batch costs."""
    cost_s: float
    """Padded seconds and the overhead of each micro-batch, in seconds of audio, of all processes."""
    slowest_s: float
    """The same of the slowest process of each step: what the epoch takes."""
    over_memory: int
    """Micro-batches larger than what fits: none."""
    speed: float
    """How many times faster than random order with one size."""


@dataclass(frozen=True)
class BatchingRecord:
    """An epoch by every strategy. The first is the Trainer's default."""

    clips: int
    audio_s: float
    longest_s: float
    strategies: tuple[BatchingStrategy, ...]
    buckets: tuple[LengthBucket, ...]
    """Those of bucketed steps."""
    notes: tuple[str, ...]
    """Warnings about too little data."""


@dataclass(frozen=True)
class LongestRecord:
    """What it costs to keep the clips over a length."""

    over_s: float
    clips: int
    audio_share: float
    """Of all audio, 0 to 1, as all shares."""
    micro_batch: int
    """What fits with them; 0: the longest not even alone."""
    without_them: int
    """What fits the longest of the others."""
    padded_share: float
    """Of the padded seconds in random order, at one micro-batch size for all."""
    time_share: float
    """Of the predicted time, likewise."""
    split_time_share: float
    """Of the predicted time where micro-batches are sized by memory: that of these clips alone."""
    text: str


@dataclass(frozen=True)
class PredictedMoment:
    """The moment of a predicted run that a real one is compared with: an allocation that is about to be made."""

    segment: str
    phase: str
    op: str
    """Whose result it is."""
    module: str
    """``""`` outside any module."""
    step: int
    """Optimizer step or evaluation batch, from 1."""


@dataclass(frozen=True)
class BatchPeak:
    """The highest figures of a run, in bytes."""

    peak_allocated: int
    peak_reserved: int


@dataclass(frozen=True)
class ModuleBytes:
    """What a part of the model holds."""

    module: str
    """A path, with * for the number of a layer where all are one row; ``""`` outside any module."""
    bytes: int


@dataclass(frozen=True)
class PeakMoment:
    """The moment of the highest allocated memory, by component and module."""

    segment: str
    phase: str
    op: str
    """Whose result it is."""
    module: str
    """``""`` outside any module."""
    components: dict[str, int]
    modules: tuple[ModuleBytes, ...]


@dataclass(frozen=True)
class OutOfMemoryPoint:
    """Where a run would stop: the request, in bytes, that the device cannot serve."""

    segment: str
    phase: str
    op: str
    """Whose result it is."""
    module: str
    """``""`` outside any module."""
    wanted: int
    reserved: int
    """Once the allocator gave its cache back."""
    allocated: int
    """What tensors held of that."""


@dataclass(frozen=True)
class PhasePeak:
    """The highest memory within one phase (``"load"``, ``"forward"``, ``"backward"``, ``"optimizer"``,
    ``"evaluation"``) of one kind of segment.
    """

    segment: str
    phase: str
    peak_allocated: int
    peak_reserved: int


@dataclass(frozen=True)
class Timeline:
    """The memory after some of a run's events: of each stretch of equal length, the event with the most allocated.

    The lists are as long as each other.
    """

    event: tuple[int, ...]
    """Counted from the run's start."""
    phase: tuple[int, ...]
    """Index into the estimate's phases."""
    allocated: tuple[int, ...]
    reserved: tuple[int, ...]
    """Most in the stretch."""
    components: dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class EstimateRecord:
    """The GPU memory of a run: peaks, what holds them, and when."""

    estimator: str
    """``"trace"`` (a recorded training step, replayed through a simulation of the allocator) or ``"published"`` (a
    tenth of the model's memory per sample).
    """
    peak_allocated: int
    """What tensors take, in blocks of live storages, with their rounding."""
    peak_requested: int
    """The same without rounding."""
    peak_reserved: int
    """What PyTorch's allocator takes from the driver for them."""
    peak_device: int | None
    """That and the driver's context; None without a GPU."""
    pinned_bytes: int | None
    """Host memory that offloaded checkpoints pin for one micro-batch; None where that is not known."""
    fits: bool | None
    """Whether every allocation found room, without a safety margin; None without a GPU."""
    retries: int
    """How often the allocator gave its cache back to find room."""
    out_of_memory: OutOfMemoryPoint | None
    """Where the run would stop; None when it does not. The peaks are then those of a GPU that is large enough."""
    fragmentation: float
    """Share of the reserved memory that no tensor holds when it is most, 0 to 1."""
    at_peak: PeakMoment
    """When most was allocated."""
    phases: tuple[PhasePeak, ...]
    """By kind of segment and phase, in order of appearance."""
    timeline: Timeline | None
    """None unless asked for."""
    approximate: int
    """Tensors whose size is not an exact polynomial of the shape."""
    notes: tuple[str, ...]


@dataclass(frozen=True)
class HeldRow:
    """The bytes that one part of a model holds in a run, and what was predicted for that moment."""

    component: str
    """``"parameters"``, ``"gradients"``, ``"optimizer"``, ``"buffers"``, ``"others"``, or ``"…"`` for all that do not
    fit into the table.
    """
    module: str
    """A path; ``"*"`` for all of a component, ``""`` outside any module."""
    held: int
    predicted: int | None
    """None without a prediction."""


@dataclass(frozen=True)
class CPU:
    """The processors that this process may use."""

    model: str
    physical_cores: int
    """Of the host."""
    logical_cores: int
    """Of the host."""
    usable_cores: float
    """After affinity and the container's quota; may be a fraction."""
    limit_source: str
    """What made usable smaller than logical; ``""`` when nothing did."""


@dataclass(frozen=True)
class GPUProcess:
    """One process with memory on a GPU."""

    pid: int
    memory_bytes: int | None
    """None where the driver does not report it (MIG, containers, WSL)."""


@dataclass(frozen=True)
class GPU:
    """One device; a MIG slice is a device of its own. Sizes are bytes as the driver gives them."""

    index: int
    """CUDA ordinal among the visible devices."""
    uuid: str
    """``""`` when planned from the catalogue."""
    name: str
    """As the driver reports it, "Tesla T4"."""
    compute_capability: str
    memory_total_bytes: int
    """As the driver reports it."""
    memory_free_bytes: int | None
    """None when planned from the catalogue."""
    memory_used_bytes: int | None
    processes: tuple[GPUProcess, ...]
    """Compute processes with their memory; empty where the driver hides them."""
    mig: bool
    """A slice."""
    bf16: bool
    """Native bfloat16: compute capability 8.0 or newer."""
    bandwidth_gb_s: float | None
    """Published, 10^9 bytes per second."""
    tensor_tflops: float | None
    """Published, dense, fp16 or bf16 with fp32 accumulation."""
    fp32_tflops: float | None
    """Published."""
    power_watts: float | None
    """Published board power."""
    source: str
    """``"driver"`` or ``"catalogue"``."""


@dataclass(frozen=True)
class Memory:
    """Host RAM in bytes, within the container's limit."""

    total_bytes: int
    """The smaller of the host's RAM and the container's limit."""
    available_bytes: int
    """What can be allocated before reclaim fails, within the limit."""
    host_total_bytes: int
    """Of the machine."""
    limit_source: str
    """The file that set the limit, ``"/sys/fs/cgroup/…/memory.max"``; ``""`` when none."""


@dataclass(frozen=True)
class HardwareRecord:
    """One machine as training sees it: container limits and visible devices already applied."""

    gpus: tuple[GPU, ...]
    """The visible devices in CUDA order; empty without a GPU."""
    no_gpu_reason: str
    """Why there is none, in words; ``""`` with GPUs."""
    order_note: str
    """Why CUDA may have selected other GPUs; ``""`` where it has not."""
    driver_version: str | None
    """NVIDIA driver, ``"550.54.15"``."""
    cuda_version: str | None
    """Highest CUDA version that the driver supports, ``"12.4"``."""
    cpu: CPU
    memory: Memory
