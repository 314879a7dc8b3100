"""A run in the trace event format: counters of memory and use, slices of steps, instants of events and alerts.

The format: "Trace Event Format" of the Chromium project; times are microseconds. Each GPU is a process of its own, and
so is the host, so that viewers group what belongs together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from .timeline import Timeline

if TYPE_CHECKING:
    from .run_files import Source

_THREADS = {"train": 1, "evaluation": 2, "checkpoint": 3}
_OTHER = 4  # events and alerts
_ROOM = 100  # processes of one source

TraceEvent = dict[str, Any]


def trace(line: Timeline) -> dict[str, Any]:
    """The object of a trace file."""
    events = [event for i, source in enumerate(line.sources) for event in _source(source, i * _ROOM + 1)]
    start = min((source.run_log.start_unix_nanos for source in line.sources), default=0)
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"start_unix_nanos": f"{start}"}}


def _source(source: Source, host: int) -> Iterator[TraceEvent]:
    yield from _names(source, host)
    yield from _memory(source, host)
    yield from _activity(source, host)
    yield from _steps(source, host)
    yield from _told(source, host)


def _names(source: Source, host: int) -> Iterator[TraceEvent]:
    prefix = f"{source.name} " if source.name else ""
    names = ["host and steps", *(f"GPU {i}: {gpu.name}" for i, gpu in enumerate(source.run_log.gpus))]
    for i, name in enumerate(names):
        yield {"ph": "M", "pid": host + i, "name": "process_name", "args": {"name": prefix + name}}
        yield {"ph": "M", "pid": host + i, "name": "process_sort_index", "args": {"sort_index": host + i}}
    for kind, thread in (*_THREADS.items(), ("events and alerts", _OTHER)):
        yield {"ph": "M", "pid": host, "tid": thread, "name": "thread_name", "args": {"name": kind}}


def _counter(source: Source, pid: int, name: str, times: Sequence[float], **named: Any) -> Iterator[TraceEvent]:
    """A counter of all that is known of a moment; where nothing is, none."""
    for at, *values in zip(times, *named.values(), strict=True):
        args = {key: value for key, value in zip(named, values, strict=True) if value is not None}
        if args:
            yield {"ph": "C", "pid": pid, "name": name, "ts": _micros(source, at), "args": args}


def _memory(source: Source, host: int) -> Iterator[TraceEvent]:
    memory, steps = source.run_log.memory, source.run_log.steps
    yield from _counter(source, host, "RAM", memory.times_s, used_bytes=memory.host_used_bytes)
    for i, used in enumerate(memory.gpu_used_bytes):
        yield from _counter(source, host + 1 + i, "memory", memory.times_s, used_bytes=used)
        mine = [k for k, gpu in enumerate(steps.gpu) if gpu == i]
        names = ("peak_allocated_bytes", "peak_reserved_bytes", "headroom_bytes")
        told = {name: [getattr(steps, name)[k] for k in mine] for name in names}
        yield from _counter(source, host + 1 + i, "PyTorch", [steps.times_s[k] for k in mine], **told)


def _activity(source: Source, host: int) -> Iterator[TraceEvent]:
    activity = source.run_log.activity
    at = activity.times_s
    yield from _counter(source, host, "processors", at, share=activity.cpu_share, busiest=activity.busiest_core)
    processes = {"training_bytes": activity.tree_rss_bytes, "workers_bytes": activity.workers_rss_bytes}
    yield from _counter(source, host, "processes", at, **processes, shm_bytes=activity.shm_used_bytes)
    disk = {"read_bytes_s": activity.disk_read_bytes_s, "written_bytes_s": activity.disk_written_bytes_s}
    yield from _counter(source, host, "disk", at, **disk)
    for i, row in enumerate(activity.gpus):
        pid = host + 1 + i
        yield from _counter(source, pid, "utilization", at, kernels=row.utilization, memory=row.memory_busy)
        yield from _counter(source, pid, "power", at, watts=row.power_w)
        yield from _counter(source, pid, "temperature", at, celsius=row.temperature_c)
        yield from _counter(source, pid, "clock", at, mhz=row.clock_mhz)


def _steps(source: Source, host: int) -> Iterator[TraceEvent]:
    """Slices; an entry without its time has none."""
    steps = source.run_log.steps
    for k, (end, kind, number) in enumerate(zip(steps.times_s, steps.kind, steps.number, strict=True)):
        spent = steps.spent_s[k]
        if spent is None:
            continue
        told = {"covers": steps.covers[k], "waited_s": steps.waited_s[k], "audio_s": steps.audio_s[k]}
        told |= {"padded_s": steps.padded_s[k], "longest_s": steps.longest_s[k]}
        yield {
            "ph": "X",
            "pid": host,
            "tid": _THREADS.get(kind, _OTHER),
            "name": f"{kind} {number}",
            "cat": kind,
            "ts": _micros(source, end - spent),
            "dur": round(1e6 * spent),
            "args": {name: value for name, value in told.items() if value is not None},
        }


def _told(source: Source, host: int) -> Iterator[TraceEvent]:
    run_log = source.run_log
    for event in run_log.events:
        yield _instant(source, host, event.at_s, event.kind, event.gpu, {"text": event.text})
    for alert in run_log.alerts:
        told = {"text": alert.text, "advice": alert.advice, "severity": alert.severity}
        yield _instant(source, host, alert.at_s, f"alert: {alert.kind}", alert.gpu, told)
        if alert.cleared_s is not None:
            told = {"text": alert.text}
            yield _instant(source, host, alert.cleared_s, f"cleared: {alert.kind}", alert.gpu, told)


def _instant(source: Source, host: int, at: float, name: str, gpu: int, args: dict[str, Any]) -> TraceEvent:
    """In its GPU's process; those of none reach across all."""
    place = {"pid": host, "tid": _OTHER, "s": "g"} if gpu < 0 else {"pid": host + 1 + gpu, "s": "p"}
    return {"ph": "i", "ts": _micros(source, at), "name": name, "cat": "event", **place, "args": args}


def _micros(source: Source, at: float) -> int:
    return round(1e6 * (at + source.offset_s))
