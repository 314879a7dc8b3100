"""What is logged of a training: a monitor's alerts, for loops of your own, too, and failures."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

from .._core.output import logger

if TYPE_CHECKING:
    from .memory_monitor import MemoryMonitor
    from .watch_records import MemoryCheck

T = TypeVar("T")

_BY_MANAGER = "in place of trainer.train(): manager.train(trainer)"
_BY_FUNCTION = "before trainer.train(): from asrconfig_go.guard import attach; attach(trainer)"


def say(message: str, level: int = logging.WARNING) -> None:
    """Log a message without tearing the Trainer's progress bars."""
    if not logger.isEnabledFor(level):
        return
    try:
        with _bars_cleared():
            logger.log(level, "%s", message)
    except (OSError, ValueError):  # the terminal of the bars is gone
        logger.log(level, "%s", message)


@contextlib.contextmanager
def _bars_cleared() -> Iterator[None]:
    try:
        from tqdm import tqdm
    except ImportError:
        yield
        return
    with tqdm.external_write_mode(file=sys.stderr):
        yield


def attach_hint(managed: bool) -> str:
    """How to get a guard: by the manager that made the callback, or without one."""
    return _BY_MANAGER if managed else _BY_FUNCTION


class BestEffort:
    """Calls of one part of the watching: its first failure is logged, and then it is skipped."""

    def __init__(self, consequence: str) -> None:
        self._consequence, self.problem = consequence, ""

    def __call__(self, function: Callable[..., T], *arguments: object) -> T | None:
        """Call ``function``; returns None once the part has failed."""
        if self.problem:
            return None
        try:
            return function(*arguments)
        except Exception as error:  # a training is worth more than what is shown of it
            self.problem = f"{type(error).__name__}: {error}"
            say(f"{self._consequence} from here on: {self.problem}")
            return None


def say_messages(check: MemoryCheck) -> int:
    """Log what a check found, what no longer holds as information; returns the number of warnings."""
    for message in check.messages:
        say(message.text, logging.INFO if message.severity == "info" else logging.WARNING)
    return sum(message.severity != "info" for message in check.messages)


class AlertReporter:
    """Logs a monitor's new alerts, in a training loop of your own.

    Call ``reporter.say()`` after each ``monitor.step()``. New alerts are logged as warnings with what to do about them,
    and again when they become critical; cleared ones are logged as information.

    Args:
        monitor: The monitor whose alerts are logged.

    Example:
        >>> with MemoryMonitor(interval_ms=20) as monitor:
        ...     AlertReporter(monitor).say()  # alerts that were logged
        0
    """

    def __init__(self, monitor: MemoryMonitor) -> None:
        self._monitor, self._changes = monitor, 0

    def say(self) -> int:
        """Log new alerts. Cheap where there are none.

        Returns:
            The number of warnings that were logged.
        """
        if (changes := self._monitor.alert_changes) == self._changes:
            return 0
        self._changes = changes
        return say_messages(self._monitor.check())
