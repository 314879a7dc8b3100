"""Messages that keep progress bars intact, and calls whose failure must not end a training."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from .._base.override import CHECKED_KEY, override

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
    """Log how a Trainer's arguments differ from the plan; ``splits``: whether a guard splits batches by memory."""
    if words := BestEffort("the arguments are not compared with the plan")(planned.check, args, model, splits):
        say(words)


def check_arguments(planned: PlannedTraining | None, trainer: Any) -> Callable[[], None]:
    """Log once how a Trainer's arguments differ from the plan; returns the function that forgets this."""
    handler = trainer.callback_handler
    if planned is None or getattr(handler, CHECKED_KEY, False):
        return lambda: None
    if trainer.is_world_process_zero():
        say_unplanned(planned, trainer.args, trainer.model, planned.config.micro_batching == "memory")
    return override(handler, CHECKED_KEY, True)


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

    def __init__(self, consequence: str) -> None:
        self._consequence, self.problem = consequence, ""

    def __call__(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call ``function``; returns None once the part has failed."""
        if self.problem:
            return None
        try:
            return function(*arguments)
        except Exception as error:  # a training is worth more than what is shown of it
            self.problem = f"{type(error).__name__}: {error}"
            say(f"{self._consequence} from here on: {self.problem}")
            return None
