"""What became of each alert: whether it came true, was averted, or passed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .timeline import Line, Timeline

if TYPE_CHECKING:
    from ..monitor.run_log import Alert, Event
    from .run_files import Source

_OUT_OF_MEMORY, _CLEAN_UP = "out_of_memory", "clean_up"
# What the guard, PyTorch and Python say when the host's memory ran out.
_HOST_WORDS = ("(loading)", "DataLoader worker", "MemoryError")
_MARGIN_S = 2.0  # an alert and what cleared it are seen a second apart
_SPENT = 0.01  # of the whole: what is left when something is used up
_HOST_ROWS = {
    "host_ram": ("host_available_bytes", "total_bytes", True),
    "workers_ram": ("host_available_bytes", "total_bytes", True),
    "shm": ("shm_used_bytes", "shm_total_bytes", False),
}


@dataclass(frozen=True)
class Outcome:
    """An alert of the run.

    ``what`` is "came true" (memory ran out, or what was warned of was used up, ``after_s`` seconds later), "averted"
    (cleared by a clean-up), "cleared" or "held" (until the end). ``at_s`` counts from the run's start.
    """

    alert: Alert
    where: str
    at_s: float
    what: str
    after_s: float | None


def outcomes(line: Timeline) -> tuple[Outcome, ...]:
    """Of all alerts, in order."""
    told = [_outcome(line, source, alert) for source in line.sources for alert in source.run_log.alerts]
    return tuple(sorted(told, key=lambda outcome: outcome.at_s))


def _outcome(line: Timeline, source: Source, alert: Alert) -> Outcome:
    begin = alert.at_s
    end = source.run_log.duration_s if alert.cleared_s is None else alert.cleared_s
    true_s = _came_true(line, source, alert, end)
    if true_s is not None:
        what, after = "came true", true_s - begin
    elif alert.cleared_s is None:
        what, after = "held", None
    else:
        events = source.run_log.events
        cleaned = any(e.kind == _CLEAN_UP and begin <= e.at_s <= end + _MARGIN_S for e in events)
        what, after = ("averted" if cleaned else "cleared"), end - begin
    return Outcome(alert, line.label_of(source, alert.gpu), begin + source.offset_s, what, after)


def _came_true(line: Timeline, source: Source, alert: Alert, end: float) -> float | None:
    """When, in seconds of the run log."""
    moments = [
        event.at_s
        for event in source.run_log.events
        if event.kind == _OUT_OF_MEMORY and alert.at_s <= event.at_s <= end + _MARGIN_S and _of_it(event, alert)
    ]
    moments += _used_up(source, alert, end)
    return min(moments, default=None)


def _of_it(event: Event, alert: Alert) -> bool:
    """Whether the memory that ran out is that of the alert. An event of no GPU may be any GPU's, or the host's."""
    of_host = event.gpu < 0 and any(words in event.text for words in _HOST_WORDS)
    if alert.gpu < 0:
        return of_host
    return event.gpu == alert.gpu or (event.gpu < 0 and not of_host)


def _used_up(source: Source, alert: Alert, end: float) -> list[float]:
    """When less than a hundredth of what the alert is about was left."""
    if alert.kind not in _HOST_ROWS:
        return []
    name, whole, left = _HOST_ROWS[alert.kind]
    total = getattr(source.run_log.host, whole)
    row = Line(source.run_log.activity.times_s, getattr(source.run_log.activity, name))
    return [
        t
        for t, v in row.known
        if total and alert.at_s <= t <= end + _MARGIN_S and (v if left else total - v) <= _SPENT * total
    ][:1]
