"""Logs a monitor's alerts, each once."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from .messages import say

if TYPE_CHECKING:
    from .memory_monitor import MemoryMonitor
    from .run_log import Alert

_CLOCK_FROM_S = 1800.0  # further off, the time of day says more


class AlertReporter:
    """Logs a monitor's new alerts.

    For custom loops: call ``reporter.say()`` after each ``monitor.step()``. New alerts are logged as warnings with what
    to do about them, and again when they become critical; cleared ones are logged as information.

    >>> with MemoryMonitor(interval_ms=20) as monitor:
    ...     AlertReporter(monitor).say()  # alerts that were logged
    0
    """

    def __init__(self, monitor: MemoryMonitor) -> None:
        self._monitor = monitor
        self._changes = 0
        self._logged: set[tuple[int, str]] = set()  # id, severity
        self._cleared: set[int] = set()

    def say(self) -> int:
        """Log new alerts and return their number. Costs one read of a number when there are none."""
        changes = self._monitor.alert_changes
        if changes == self._changes:
            return 0
        self._changes = changes
        new = 0
        for alert in self._monitor.alerts():
            if (alert.id, alert.severity) not in self._logged:
                self._logged.add((alert.id, alert.severity))
                new += 1
                say(in_words(alert))
            if alert.cleared_s is not None and alert.id not in self._cleared:
                self._cleared.add(alert.id)
                say(f"no longer: {alert.text}", logging.INFO)
        return new


def in_words(alert: Alert) -> str:
    """A warning and its advice, with the time of day where it speaks of hours."""
    seconds, clock = alert.seconds_left, ""
    if seconds is not None and seconds >= _CLOCK_FROM_S and alert.cleared_s is None:
        clock = f" (at about {_time_of_day(seconds)})"
    advice = f" → {alert.advice}" if alert.advice else ""
    return f"{alert.text}{clock}{advice}"


def _time_of_day(seconds: float) -> str:
    now, then = time.time(), time.time() + seconds
    same_day = time.localtime(now)[:3] == time.localtime(then)[:3]
    return time.strftime("%H:%M" if same_day else "%H:%M on %a %d %b", time.localtime(then))
