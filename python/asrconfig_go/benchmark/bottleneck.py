"""The bottleneck of the measured steps, and what a monitor saw of them: by the rules of core/diagnosis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from .._core import native
from .._core.records import from_json, to_json
from ..errors import AsrConfigError, LibraryError
from ..watch.run_files import settings_of
from ..watch.run_log import RunLog
from ..watch.watch_records import Finding
from .measurements import Block, OptionResult, Readings, SideResult

if TYPE_CHECKING:
    from ..watch.memory_monitor import MemoryMonitor


def bottleneck(
    plan: SideResult, options: Sequence[OptionResult] = (), *, checkpointing: bool, gpu: bool
) -> tuple[Finding, tuple[str, ...], str]:
    """The bottleneck of the plan's side, the options that may help, and what to change by those that were tried."""
    answer = native.call(
        "diagnosis.cause",
        {
            "shares": plan.shares,
            "padding": plan.padding,
            "fixed_s": plan.fixed_s,
            "queueing": plan.queueing,
            "checkpointing": checkpointing,
            "gpu": gpu,
            "tried": [_tried(option) for option in options if option.gain is not None],
        },
    )
    return from_json(Finding, answer["finding"]), tuple(answer["try"]), answer["next_change"]


def _tried(option: OptionResult) -> dict[str, object]:
    gains = {"gain": option.gain and asdict(option.gain), "cpu_gain": option.cpu_gain and asdict(option.cpu_gain)}
    return {"name": f"{option.option} {option.value}", "change": option.change, "better": bool(option.better), **gains}


class Watch:
    """Monitors the whole benchmark, where a monitor can be started."""

    def __init__(self) -> None:
        from ..watch.memory_monitor import MemoryMonitor

        self.problem = ""
        self._monitor: MemoryMonitor | None = None
        try:
            self._monitor = MemoryMonitor()
        except AsrConfigError as error:
            self.problem = f"memory was not watched: {error.message}"

    def stop(self) -> RunLog | None:
        """End it; what it saw."""
        if self._monitor is None:
            return None
        self._monitor.stop()
        return self._monitor.run_log()


def seen(
    run_log: RunLog | None, blocks: Sequence[Block], settings: Mapping[str, object]
) -> tuple[Readings, tuple[Finding, ...]]:
    """What the monitor read while these blocks ran, on the busiest GPU if there are several, and what it means."""
    if run_log is None or not blocks:
        return Readings(), ()
    request = {"run_log": to_json(run_log), "run": settings_of((settings,), None), "blocks": list(map(_block, blocks))}
    try:
        answer = native.call("diagnosis.blocks", request)
    except LibraryError:  # the rest of a benchmark needs none
        return Readings(), ()
    return from_json(Readings, answer["readings"]), tuple(from_json(Finding, row) for row in answer["findings"])


def _block(block: Block) -> dict[str, object]:
    names = ("begun_unix_s", "seconds", "peak_allocated_bytes", "peak_reserved_bytes")
    steps = [{"seconds": step.seconds, "waiting_s": step.waiting_s} for step in block.steps]
    return {**{name: getattr(block, name) for name in names}, "steps": steps}
