"""The monitor's readings during the blocks of a side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .._base.errors import AsrConfigError
from ..monitor.run_log import RunLog
from .measurements import Block, Readings


class Watch:
    """Monitors the whole benchmark, where a monitor can be started."""

    def __init__(self) -> None:
        from ..monitor.memory_monitor import MemoryMonitor

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
