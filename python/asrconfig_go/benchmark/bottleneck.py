"""The bottleneck of the measured steps, by the diagnosis and the monitor's readings."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from .._core.render import percent
from ..errors import AsrConfigError, LibraryError
from ..watch.diagnosis import Finding, diagnose, settings_of
from ..watch.run_log import RunLog, StepSeries
from .measurements import Block, OptionResult, Readings, SideResult, Spread

_WAITING = 0.15  # of a step, as core/diagnosis has it
_PADDING = 0.15  # of what is computed
_OPTIMIZER = 0.25
_OTHER = 0.15
_QUEUEING = 0.9  # of the GPU's time: it waits for its next kernel


@dataclass(frozen=True)
class _Cause:
    kind: str
    title: str
    lost: float
    """The share of a step that it takes, for the order."""
    change: str
    tries: tuple[str, ...]


def bottleneck(plan: SideResult, *, checkpointing: bool, gpu: bool) -> tuple[Finding, tuple[str, ...]]:
    """The bottleneck of the plan's side by the measured shares of its steps, and the options that may help."""
    cause = max(_causes(plan, checkpointing, gpu), key=lambda each: each.lost)
    shares = ", ".join(f"{part} {percent(share)}" for part, share in plan.shares.items())
    evidence = f"of a step: {shares}"
    if plan.padding is not None:
        evidence += f"; {percent(plan.padding)} of what is computed is padding"
        evidence += "" if plan.fixed_s is None else f" to the {plan.fixed_s:.3g} s that the model always hears"
    if plan.queueing is not None:
        evidence += f"; queueing takes the CPU {percent(plan.queueing)} of the GPU's time"
    severity = "info" if cause.kind == "compute" else "warn"
    return Finding(cause.kind, severity, cause.title, evidence, cause.change, "", ""), cause.tries


def _causes(plan: SideResult, checkpointing: bool, gpu: bool) -> list[_Cause]:
    shares, device = plan.shares, "GPU" if gpu else "training"
    model = shares["forward"] + shares["backward"]
    precise = ("precision", "compile", "attention") if gpu else ("precision", "attention")
    change = "a faster device, a smaller model or frozen layers would help"
    causes = [_Cause("compute", "Most of a step is the model's own computation", 0.0, change, precise)]
    if shares["waiting"] >= _WAITING:
        change = "let more workers prepare batches, or prepare them once with dataset.map(...)"
        title = f"The {device} waits for the data loader"
        causes.append(_Cause("loader", title, shares["waiting"], change, ("workers", "prefetch", "persistent")))
    if (plan.padding or 0.0) >= _PADDING and plan.fixed_s is None:
        lost, change = (plan.padding or 0.0) * model, "make steps of clips of similar length"
        causes.append(_Cause("padding", "Much of what is computed is padding", lost, change, ("order",)))
    if shares["optimizer"] >= _OPTIMIZER:
        change = "accumulate more clips before each step, or take a fused optimizer"
        causes.append(_Cause("optimizer", "The optimizer takes much of a step", shares["optimizer"], change, ()))
    if shares["other"] >= _OTHER:
        change = "look at a profile (profile=DIR): callbacks, copies to the device, waiting for the GPU"
        title = "Much of a step is neither model nor optimizer"
        causes.append(_Cause("trainer", title, shares["other"], change, ("pin", "compile")))
    if plan.queueing is not None and plan.queueing >= _QUEUEING:
        change = "compile the model, or compute more clips at once"
        title = "The GPU waits for its next kernel: steps are too small for it"
        causes.append(_Cause("small_batch", title, model / 2, change, ("compile", "attention")))
    if checkpointing:
        change = "keep activations where memory allows it"
        title = "The forward pass is computed twice, to save memory"
        causes.append(_Cause("checkpointing", title, shares["forward"], change, ("checkpointing",)))
    return causes


def next_change(finding: Finding, options: tuple[OptionResult, ...]) -> str:
    """What to change, with its measured gain; or that nothing of what was tried helps."""
    gains = [(option.gain, option) for option in options if option.better and option.gain is not None]
    if gains:
        gain, best = max(gains, key=lambda pair: pair[0].median)
        cpu = "" if best.cpu_gain is None else f"; by processor time {_times(best.cpu_gain)}"
        return f"set {best.change}: {_times(gain)} times as fast over the rounds{cpu}"
    tried = [f"{option.option} {option.value}" for option in options if option.gain is not None]
    if tried:
        return f"no tried change is clearly faster ({', '.join(tried)}); {finding.change}"
    return f"{finding.change} (not measured)"


def _times(gain: Spread) -> str:
    return f"{gain.median:.2f} ({gain.low:.2f} to {gain.high:.2f})"


class Watch:
    """Monitors the whole benchmark, where a monitor can be started."""

    def __init__(self) -> None:
        from ..watch.memory_monitor import MemoryMonitor

        self.problem = ""
        self._monitor: Any = None
        try:
            self._monitor = MemoryMonitor()
        except AsrConfigError as error:
            self.problem = f"memory was not watched: {error.message}"

    def stop(self) -> RunLog | None:
        """End it; what it saw."""
        if self._monitor is None:
            return None
        self._monitor.stop()
        run_log: RunLog = self._monitor.run_log()
        return run_log


def readings(run_log: RunLog | None, blocks: Sequence[Block]) -> Readings:
    """Those between begin and end of these blocks, on the busiest GPU if there are several."""
    if run_log is None or not blocks:
        return Readings()
    slow, fast = (rows_inside(run_log, series.times_s, blocks) for series in (run_log.activity, run_log.memory))
    busy = [_mean(_values(gpu.utilization, slow)) for gpu in run_log.activity.gpus]
    peaks = [_highest(_values(used, fast)) for used in run_log.memory.gpu_used_bytes]
    place = max(range(len(run_log.gpus)), key=lambda i: busy[i] or 0.0, default=None)
    return Readings(
        gpu_use=None if place is None else busy[place],
        gpu_memory_bytes=None if place is None else peaks[place],
        gpu_total_bytes=None if place is None else run_log.gpus[place].total_bytes or None,
        ram_bytes=_highest(_values(run_log.activity.tree_rss_bytes, slow)),
    )


def rows_inside(run_log: RunLog, times: Sequence[float], blocks: Sequence[Block]) -> list[int]:
    """Which of ``times``, seconds of the run log, lie in one of the blocks."""
    start = run_log.start_unix_nanos / 1e9
    spans = [(block.begun_unix_s - start, block.begun_unix_s - start + block.seconds) for block in blocks]
    return [i for begin, end in spans for i, at in enumerate(times) if begin <= at <= end]


def _values(column: Sequence[float | None], rows: list[int]) -> list[float]:
    return [value for i in rows if i < len(column) and (value := column[i]) is not None]


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _highest(values: list[float]) -> int | None:
    return int(max(values)) if values else None


_NOTHING = ("healthy", "too_short")


def seen(
    run_log: RunLog | None, blocks: Sequence[Block], settings: Mapping[str, Any], known_kind: str
) -> tuple[Finding, ...]:
    """Findings but for the kind that is ``known`` from the parts of a step."""
    if run_log is None or not run_log.gpus or not blocks:
        return ()
    try:
        findings = diagnose(of_blocks(run_log, blocks), settings_of((settings,), None))
    except LibraryError:  # the rest of a benchmark needs none
        return ()
    return tuple(finding for finding in findings if finding.kind not in (*_NOTHING, known_kind))


def of_blocks(run_log: RunLog, blocks: Sequence[Block]) -> RunLog:
    """The run log of these blocks only, with their steps."""
    slow, fast = (rows_inside(run_log, series.times_s, blocks) for series in (run_log.activity, run_log.memory))
    memory = dataclasses.replace(
        _cut(run_log.memory, fast), gpu_used_bytes=tuple(_taken(used, fast) for used in run_log.memory.gpu_used_bytes)
    )
    gpus = tuple(_cut(gpu, slow) for gpu in run_log.activity.gpus)
    activity = dataclasses.replace(_cut(run_log.activity, slow), gpus=gpus)
    steps = _steps(run_log, list(_each_step(run_log, blocks)))
    return dataclasses.replace(run_log, memory=memory, activity=activity, steps=steps, events=(), alerts=())


def _taken(column: Sequence[Any], rows: Sequence[int]) -> tuple[Any, ...]:
    return tuple(column[i] for i in rows if i < len(column))


def _cut(series: Any, rows: Sequence[int]) -> Any:
    columns = {
        field.name: _taken(value, rows)
        for field in dataclasses.fields(series)
        if isinstance(value := getattr(series, field.name), tuple) and field.name not in ("gpus", "gpu_used_bytes")
    }
    return dataclasses.replace(series, **columns)


def _each_step(run_log: RunLog, blocks: Sequence[Block]) -> Iterator[dict[str, Any]]:
    for block in blocks:
        begin = block.begun_unix_s - run_log.start_unix_nanos / 1e9
        for step, end in zip(block.steps, accumulate(step.seconds for step in block.steps), strict=True):
            yield {
                "times_s": begin + end, "spent_s": step.seconds, "waited_s": step.waiting_s, "kind": "train",
                "covers": 1, "gpu": 0, "peak_allocated_bytes": _number(block.peak_allocated_bytes),
                "peak_reserved_bytes": _number(block.peak_reserved_bytes),
            }  # fmt: skip


def _number(size: int | None) -> float | None:
    return None if size is None else float(size)


def _steps(run_log: RunLog, steps: list[dict[str, Any]]) -> StepSeries:
    names = [field.name for field in dataclasses.fields(run_log.steps)]
    columns: dict[str, Any] = {name: tuple(step.get(name) for step in steps) for name in names}
    return StepSeries(**{**columns, "number": tuple(range(1, len(steps) + 1))})
