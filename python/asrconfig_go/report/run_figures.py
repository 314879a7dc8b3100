"""The figures of a run: what it took, how fast it was, what was left, and what happened."""

from __future__ import annotations

from dataclasses import dataclass

from ..monitor.run_log import Alert


@dataclass(frozen=True)
class GPUFigures:
    """One GPU: bytes, watts, degrees Celsius; shares are 0 to 1, means are over time. None: never known.

    ``headroom_lowest_bytes`` is that at the peak of a step, and counts what PyTorch's cache holds unused as free, where
    PyTorch's counters are known.
    ``throttled`` is the share of time that each reason held the clock back.
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


@dataclass(frozen=True)
class HostFigures:
    """One machine: bytes, bytes a second, shares of 0 to 1. None: never known."""

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
class StepFigures:
    """Optimizer steps, evaluation batches and checkpoints, with seconds that they took.

    ``steps_per_s`` and ``audio_rate`` (seconds of audio a second) count the time of training steps alone. ``padding``
    is the share of computed audio that is none, ``waited`` the share of time that steps waited for the loader,
    ``model_flops_utilization`` what the model's arithmetic takes of it at the GPU's published rate.
    """

    train: int
    evaluation: int
    checkpoint: int
    first: int | None
    last: int | None
    train_s: float | None
    evaluation_s: float | None
    checkpoint_s: float | None
    steps_per_s: float | None
    audio_rate: float | None
    padding: float | None
    waited: float | None
    model_flops_utilization: float | None
    longest_clip_s: float | None


@dataclass(frozen=True)
class Outcome:
    """An alert of the run.

    ``what`` is "came true" (memory ran out, or what was warned of was used up, ``after_s`` seconds later), "averted"
    (cleared by a clean-up), "cleared" or "held" (until the end). ``where`` is the label of a GPU, "" for the host.
    Times count from the run's start.
    """

    alert: Alert
    where: str
    at_s: float
    what: str
    after_s: float | None


@dataclass(frozen=True)
class Moment:
    """Something that happened once; ``where`` is the label of a GPU, or ""."""

    at_s: float
    kind: str
    where: str
    text: str


@dataclass(frozen=True)
class Band:
    """A time in which something lasted."""

    begin_s: float
    end_s: float
    kind: str  # "evaluation", "checkpoint" or "gap"
