"""The diagnosis of the plan's blocks as one training, on GPUs only."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

from .._base.errors import LibraryError
from ..monitor.run_log import RunLog, StepSeries
from ..report.diagnosis import Finding, diagnose
from ..report.diagnosis_settings import settings_of
from .measurements import Block
from .monitor_figures import rows_inside

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
