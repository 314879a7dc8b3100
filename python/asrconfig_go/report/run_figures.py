"""The figures of a run: what it took, how fast it was, what was left."""

from __future__ import annotations

from dataclasses import dataclass

from ..monitor.run_log import StepSeries
from .run_files import Source
from .timeline import GPUView, Line, Timeline, spans

# Bits of core/runlog, with words for people.
THROTTLES = {1: "power limit", 2: "heat", 4: "power brake", 8: "a clock that was set"}


@dataclass(frozen=True)
class GPUFigures:
    """One GPU: bytes, watts, degrees Celsius; shares are 0 to 1, means are over time. None: never known.

    ``headroom_lowest_bytes`` is that at the peak of a step, and counts what PyTorch's cache holds unused as free, where
    PyTorch's counters are known.
    ``throttled`` is the share of time that each reason held the clock back.
    """

    label: str
    name: str
    total_bytes: int | None
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
    power_w: float | None
    energy_wh: float | None
    temperature_peak_c: float | None
    clock_mhz: float | None
    throttled: dict[str, float]


@dataclass(frozen=True)
class HostFigures:
    """One machine: bytes, bytes a second, shares of 0 to 1. None: never known."""

    label: str
    total_bytes: int | None
    cpus: int
    contained: bool
    used_peak_bytes: float | None
    available_lowest_bytes: float | None
    tree_rss_peak_bytes: float | None
    workers_rss_peak_bytes: float | None
    swap_peak_bytes: float | None
    shm_total_bytes: int | None
    shm_peak_bytes: float | None
    cpu_share: float | None
    busiest_core: float | None
    disk_read_bytes_s: float | None
    disk_written_bytes_s: float | None
    net_received_bytes_s: float | None
    net_sent_bytes_s: float | None


@dataclass(frozen=True)
class StepFigures:
    """Optimizer steps, evaluation batches and checkpoints, with seconds that they took.

    ``steps_per_s`` and ``audio_rate`` (seconds of audio a second) count the time of training steps alone. ``padding``
    is the share of computed audio that is none, ``waited`` the share of time that steps waited for the loader.
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
    longest_clip_s: float | None


def gpu_figures(line: Timeline, view: GPUView) -> GPUFigures:
    """Of one GPU."""
    used, power = line.used(view), line.gpu_row(view, "power_w")
    total = view.gpu.total_bytes or None
    peak, lowest = highest(used), _lowest_headroom(line, view, used, total)
    energy = integral(power)
    return GPUFigures(
        label=view.label,
        name=view.gpu.name,
        total_bytes=total,
        used_mean_bytes=mean(used),
        used_peak_bytes=peak and peak[1],
        used_peak_at_s=peak and peak[0],
        allocated_peak_bytes=_top(line.torch(view, "peak_allocated_bytes")),
        reserved_peak_bytes=_top(line.torch(view, "peak_reserved_bytes")),
        headroom_lowest_bytes=lowest and lowest[1],
        headroom_lowest_at_s=lowest and lowest[0],
        others_peak_bytes=_top(line.gpu_row(view, "others_bytes")),
        utilization=mean(line.gpu_row(view, "utilization")),
        memory_busy=mean(line.gpu_row(view, "memory_busy")),
        power_w=mean(power),
        energy_wh=None if energy is None else energy / 3600,
        temperature_peak_c=_top(line.gpu_row(view, "temperature_c")),
        clock_mhz=mean(line.gpu_row(view, "clock_mhz")),
        throttled=_throttled(line.gpu_row(view, "throttle")),
    )


def _lowest_headroom(line: Timeline, view: GPUView, used: Line, total: int | None) -> tuple[float, float] | None:
    """When and how little; what the driver has free where PyTorch's counters are not known."""
    known = line.headroom(view).known
    if not known and total is not None:
        known = [(t, total - v) for t, v in used.known]
    return min(known, key=lambda point: point[1]) if known else None


def host_figures(line: Timeline) -> tuple[HostFigures, ...]:
    """Of each machine."""
    return tuple(_host(line, node[0].name if len(line.nodes) > 1 else "", node) for node in line.nodes)


def _host(line: Timeline, label: str, node: tuple[Source, ...]) -> HostFigures:
    host = node[0].run_log.host

    def row(name: str) -> Line:
        return line.host_row(node, name)

    available = row("host_available_bytes").known
    return HostFigures(
        label=label,
        total_bytes=host.total_bytes or None,
        cpus=host.cpus,
        contained=host.contained,
        used_peak_bytes=_top(line.host_used(node)),
        available_lowest_bytes=min((v for _, v in available), default=None),
        tree_rss_peak_bytes=_top(row("tree_rss_bytes")),
        workers_rss_peak_bytes=_top(row("workers_rss_bytes")),
        swap_peak_bytes=_top(row("swap_used_bytes")),
        shm_total_bytes=host.shm_total_bytes or None,
        shm_peak_bytes=_top(row("shm_used_bytes")),
        cpu_share=mean(row("cpu_share")),
        busiest_core=mean(row("busiest_core")),
        disk_read_bytes_s=mean(row("disk_read_bytes_s")),
        disk_written_bytes_s=mean(row("disk_written_bytes_s")),
        net_received_bytes_s=mean(row("net_received_bytes_s")),
        net_sent_bytes_s=mean(row("net_sent_bytes_s")),
    )


def step_figures(line: Timeline) -> StepFigures:
    """Of the leading run logs; audio of all ranks."""
    spent = {kind: _sum(line.step_row(_spent, kind)) for kind in ("train", "evaluation", "checkpoint")}
    numbers = [
        n for s in line.leads for n, k in zip(s.run_log.steps.number, s.run_log.steps.kind, strict=True) if k == "train"
    ]
    train, audio = _count(line, "train"), _of_train(line, "audio_s")
    padded, paired_audio = _of_train(line, "padded_s"), _of_train(line, "audio_s", beside="padded_s")
    waited, paired_spent = _of_train(line, "waited_s"), _of_train(line, "spent_s", beside="waited_s")
    seconds = spent["train"]
    return StepFigures(
        train=train,
        evaluation=_count(line, "evaluation"),
        checkpoint=_count(line, "checkpoint"),
        first=min(numbers, default=None),
        last=max(numbers, default=None),
        train_s=seconds,
        evaluation_s=spent["evaluation"],
        checkpoint_s=spent["checkpoint"],
        steps_per_s=train / seconds if seconds else None,
        audio_rate=audio / seconds if seconds and audio is not None else None,
        padding=1 - (paired_audio or 0.0) / padded if padded else None,
        waited=(waited or 0.0) / paired_spent if paired_spent else None,
        longest_clip_s=_top(line.step_row(lambda steps, i: steps.longest_s[i])),
    )


def _spent(steps: StepSeries, i: int) -> float | None:
    return steps.spent_s[i]


def _count(line: Timeline, kind: str) -> int:
    """Steps on several GPUs have an entry for each, and times in the first alone."""
    count = 0
    for source in line.leads:
        steps = source.run_log.steps
        rows = [(n, s) for n, k, s in zip(steps.covers, steps.kind, steps.spent_s, strict=True) if k == kind]
        timed = [n for n, spent in rows if spent is not None]
        count += sum(timed or [n for n, _ in rows])
    return count


def _of_train(line: Timeline, name: str, beside: str = "") -> float | None:
    """The sum of a column over the training steps of every rank, of those that know ``beside``, too."""
    found = []
    for source in line.sources:
        steps = source.run_log.steps
        others = getattr(steps, beside or name)
        rows = zip(steps.kind, getattr(steps, name), others, strict=True)
        found += [v for kind, v, other in rows if kind == "train" and v is not None and other is not None]
    return sum(found) if found else None


def mean(line: Line) -> float | None:
    """Over time; points across a gap count no more than others."""
    pairs = [(v, s) for v, s in zip(line.values, spans(line.times), strict=True) if v is not None]
    whole = sum(s for _, s in pairs)
    if not whole:
        return sum(v for v, _ in pairs) / len(pairs) if pairs else None
    return sum(v * s for v, s in pairs) / whole


def integral(line: Line) -> float | None:
    """Over time: joules of watts. What was not sampled is not counted."""
    pairs = [(v, s) for v, s in zip(line.values, spans(line.times), strict=True) if v is not None]
    return sum(v * s for v, s in pairs) if pairs else None


def highest(line: Line) -> tuple[float, float] | None:
    """When and how much."""
    return max(line.known, key=lambda point: point[1], default=None)


def _top(line: Line) -> float | None:
    found = highest(line)
    return found and found[1]


def _sum(line: Line) -> float | None:
    known = [v for _, v in line.known]
    return sum(known) if known else None


def _throttled(line: Line) -> dict[str, float]:
    """The share of time that each reason held, of those that did."""
    pairs = [(int(v), s) for v, s in zip(line.values, spans(line.times), strict=True) if v is not None]
    whole = sum(s for _, s in pairs)
    shares = {word: sum(s for v, s in pairs if v & bit) for bit, word in THROTTLES.items()}
    return {word: held / whole for word, held in shares.items() if held and whole}
