"""Whether a run log that somebody may have changed holds together: what is read later on takes that for granted."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any

from ..monitor.run_log import RunLog


def complaint(run_log: RunLog) -> str:
    """What is wrong with it, "" if nothing is."""
    for name, length, column in _columns(run_log):
        if len(column) != length:
            return f"{name} has {len(column)} entries, not {length}"
        if not name.endswith("kind") and not math.isfinite(sum(value for value in column if value is not None)):
            return f"{name} holds a number that is not finite"
    if len(run_log.memory.gpu_used_bytes) != len(run_log.gpus) or len(run_log.activity.gpus) != len(run_log.gpus):
        return f"its columns are not those of {len(run_log.gpus)} GPUs"
    return "" if 0 <= run_log.duration_s < math.inf else f"it lasts {run_log.duration_s} s"


def _columns(run_log: RunLog) -> Iterator[tuple[str, int, Sequence[Any]]]:
    """Every column with its name and the length that it should have."""
    memory, activity, steps = run_log.memory, run_log.activity, run_log.steps
    yield from _of("memory", memory, len(memory.times_s))
    for i, used in enumerate(memory.gpu_used_bytes):
        yield f"memory of GPU {i}", len(memory.times_s), used
    yield from _of("activity", activity, len(activity.times_s))
    for i, gpu in enumerate(activity.gpus):
        yield from _of(f"activity of GPU {i}:", gpu, len(activity.times_s))
    yield from _of("steps", steps, len(steps.times_s))


def _of(name: str, series: Any, length: int) -> Iterator[tuple[str, int, Sequence[Any]]]:
    for field in fields(series):
        column = getattr(series, field.name)
        if isinstance(column, tuple) and field.name not in ("gpus", "gpu_used_bytes"):
            yield f"{name} {field.name}", length, column
