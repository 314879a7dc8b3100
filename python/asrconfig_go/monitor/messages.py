"""Messages that keep progress bars intact, and calls whose failure must not end a training."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..apply.argument_check import PlannedTraining

logger: logging.Logger = logging.getLogger("asrconfig_go")


def say(message: str, level: int = logging.WARNING) -> None:
    """Log a message without tearing the Trainer's progress bars."""
    if not logger.isEnabledFor(level):
        return
    try:
        with _bars_cleared():
            logger.log(level, "%s", message)
    except (OSError, ValueError):  # the terminal of the bars is gone
        logger.log(level, "%s", message)


def say_unplanned(planned: PlannedTraining, args: Any, model: Any, splits: bool = False) -> None:
    """Log what of a Trainer's arguments is not as planned, where a guard ``splits`` batches by memory, or none does."""
    if words := BestEffort("the arguments are not compared with the plan")(planned.check, args, model, splits):
        say(words)


@contextlib.contextmanager
def _bars_cleared() -> Iterator[None]:
    try:
        from tqdm import tqdm
    except ImportError:
        yield
        return
    with tqdm.external_write_mode(file=sys.stderr):
        yield


class BestEffort:
    """Calls of one part of the watching: its first failure is logged, and then it is skipped."""

    def __init__(self, what: str) -> None:
        self.what, self.problem = what, ""

    def __call__(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """What ``function`` gives; None once the part has failed."""
        if self.problem:
            return None
        try:
            return function(*arguments)
        except Exception as error:  # a training is worth more than what is shown of it
            self.problem = f"{type(error).__name__}: {error}"
            say(f"{self.what} from here on: {self.problem}")
            return None
