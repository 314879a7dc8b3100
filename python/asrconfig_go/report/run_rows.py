"""A run log as rows: every point of every series, every step, event and alert, in the order of time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

from ..monitor.run_log import ActivitySeries, GPUActivitySeries, StepSeries
from .timeline import Timeline

if TYPE_CHECKING:
    from .run_files import Source

Row = dict[str, Any]

_HOST = tuple(f.name for f in fields(ActivitySeries) if f.name not in ("times_s", "gpus"))
_GPU = tuple(f.name for f in fields(GPUActivitySeries))
_STEP = tuple(f.name for f in fields(StepSeries) if f.name not in ("times_s", "number", "kind", "gpu"))
_ALERT = ("id", "severity", "since_step", "since_s", "bytes_per_step", "bytes_per_s", "steps_left", "seconds_left",
          "advice", "cleared_s")  # fmt: skip


def columns(line: Timeline) -> list[str]:
    """Every key that a row may have, in the order of a table's columns; bytes, seconds and shares by their names."""
    gpus = range(max((len(source.run_log.gpus) for source in line.sources), default=0))
    found = ["time_s", "unix_s", *(["source"] if len(line.sources) > 1 else []), "series"]
    found += ["host_used_bytes", *(f"gpu{i}_used_bytes" for i in gpus), *_HOST]
    found += [f"gpu{i}_{name}" for i in gpus for name in _GPU]
    return [*found, "step", "kind", "gpu", *_STEP, "text", *_ALERT]


def rows(line: Timeline) -> Iterator[Row]:
    """What is known of each moment, by the keys of ``columns``; what is not known has no key."""
    for source in line.sources:
        found = [*_memory(source), *_activity(source), *_steps(source), *_told(source)]
        found.sort(key=lambda row: row["time_s"])
        for row in found:
            at = row["time_s"]
            named = {"source": source.name or "first"} if len(line.sources) > 1 else {}
            unix = source.run_log.start_unix_nanos / 1e9 + at
            yield {
                "time_s": round(at + source.offset_s, 6),
                "unix_s": round(unix, 3),
                **named,
                **_without(row, "time_s"),
            }


def _without(row: Row, key: str) -> Row:
    return {name: value for name, value in row.items() if name != key and value is not None}


def _memory(source: Source) -> Iterator[Row]:
    memory = source.run_log.memory
    named = {"host_used_bytes": memory.host_used_bytes}
    named |= {f"gpu{i}_used_bytes": column for i, column in enumerate(memory.gpu_used_bytes)}
    return _series("memory", memory.times_s, named)


def _activity(source: Source) -> Iterator[Row]:
    activity = source.run_log.activity
    named = {name: getattr(activity, name) for name in _HOST}
    named |= {f"gpu{i}_{name}": getattr(rows, name) for i, rows in enumerate(activity.gpus) for name in _GPU}
    return _series("activity", activity.times_s, named)


def _steps(source: Source) -> Iterator[Row]:
    steps = source.run_log.steps
    gpus = tuple(None if gpu < 0 else gpu for gpu in steps.gpu)
    named: dict[str, Any] = {"step": steps.number, "kind": steps.kind, "gpu": gpus}
    return _series("step", steps.times_s, named | {name: getattr(steps, name) for name in _STEP})


def _series(series: str, times: tuple[float, ...], named: dict[str, Any]) -> Iterator[Row]:
    names = tuple(named)
    for at, *values in zip(times, *named.values(), strict=True):
        yield {"time_s": at, "series": series, **dict(zip(names, values, strict=True))}


def _told(source: Source) -> Iterator[Row]:
    """Events and alerts. ``cleared_s`` is written as seconds of the run, as ``time_s`` is."""
    for event in source.run_log.events:
        gpu = None if event.gpu < 0 else event.gpu
        yield {"time_s": event.at_s, "series": "event", "kind": event.kind, "gpu": gpu, "text": event.text}
    for alert in source.run_log.alerts:
        told = asdict(alert)
        cleared = None if alert.cleared_s is None else round(alert.cleared_s + source.offset_s, 6)
        row = {name: told[name] for name in _ALERT if told[name] != ""} | {"cleared_s": cleared}
        gpu = None if alert.gpu < 0 else alert.gpu
        yield {"time_s": alert.at_s, "series": "alert", "kind": alert.kind, "gpu": gpu, "text": alert.text, **row}
