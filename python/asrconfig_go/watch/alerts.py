"""Warnings of a training: the monitor's alerts, a batch that is predicted not to fit, a missing guard."""

from __future__ import annotations

import contextlib
import inspect
import logging
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from .._core.modules import bare
from .._core.render import GIB, plural
from .._core.transformers_features import CHECKED_KEY, GUARD_KEY, override
from ..errors import InvalidArgumentError

if TYPE_CHECKING:
    from ..guard.guard import Guard
    from ..plan.argument_check import PlannedTraining
    from ..plan.plan_record import PlanRecord
    from .memory_monitor import MemoryMonitor
    from .run_log import Alert


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


_BY_MANAGER = "in place of trainer.train(): manager.train(trainer)"
_BY_FUNCTION = "before trainer.train(): from asrconfig_go.guard import attach; attach(trainer)"


def guard_among(handler: Any) -> Guard | None:
    """The guard of the Trainer whose callbacks these are."""
    return getattr(handler, GUARD_KEY, None)


def attach_hint(managed: bool) -> str:
    """How to get a guard: by the manager that made the callback, or without one."""
    return _BY_MANAGER if managed else _BY_FUNCTION


def without_guard(args: Any, model: Any, config: PlanRecord | None) -> list[str]:
    """How the Trainer alone differs from the plan, and from a step of one whole batch."""
    from ..plan.argument_check import differences

    losses = []
    processes = args.world_size if getattr(args, "average_tokens_across_devices", False) else 1
    factor = args.gradient_accumulation_steps * processes
    if factor > 1 and _is_multiplied(model):
        losses.append(
            f"the Trainer makes the gradients of {type(model).__name__} up to {factor} times too large "
            "(transformers issue 47688)"
        )
    if config is not None and config.micro_batching == "memory":
        batch = args.train_batch_size
        as_planned = batch <= config.micro_batch_size and not differences(config, args, model)
        fits = "take longer than planned" if as_planned else "may not fit"
        batches = f"{batch} × {args.gradient_accumulation_steps}"
        losses.append(
            f"the plan's micro-batches are sized by predicted memory, and the Trainer's batches of {batches} {fits}"
        )
    return losses


def _is_multiplied(model: Any) -> bool:
    """Whether a mean is taken for a loss divided by ``num_items_in_batch``; transformers 4.46 divides none at all."""
    from transformers import Trainer

    from ..guard.loss_table import loss_of

    loss = loss_of(model)
    if loss is None or loss.rule == "sum" or loss.takes_num_items:
        return False
    base = bare(model)
    named = inspect.signature(base.forward).parameters.values()
    accepts_kwargs = getattr(base, "accepts_loss_kwargs", any(p.kind is p.VAR_KEYWORD for p in named))
    return bool(accepts_kwargs) or "loss = loss / self." not in inspect.getsource(Trainer.training_step)


_WORSE = 1.05  # times the last warning, for another one


class Excess(NamedTuple):
    """By how many times a batch exceeds what fits, and a description."""

    times: float
    words: str


Predictor = Callable[[int, float], Excess | None]
"""Returns the warning for a number of clips and seconds; None when they fit."""


class NextBatch:
    """Calls ``predict`` for each size that is not known to fit, and warns by ``say`` of batches that will not.

    Lengths are rounded up to half a second. A batch not much worse than one that was warned of is passed over.
    """

    def __init__(self, predict: Predictor, say: Callable[[str], None]) -> None:
        self._predict, self._say = predict, say
        self._fits: dict[int, int] = {}
        self._warned: set[tuple[int, int]] = set()
        self._worst = 0.0

    def __call__(self, clips: int, seconds: float) -> None:
        """Look at the batch that is about to run."""
        from ..predict.memory_limits import GRID_S

        step = max(1, math.ceil(seconds / GRID_S - 1e-9))
        if clips <= self._fits.get(step, 0) or (clips, step) in self._warned:
            return
        excess = self._predict(clips, step * GRID_S)
        if excess is None:
            self._fits[step] = clips
            return
        self._warned.add((clips, step))
        if excess.times > _WORSE * self._worst:
            self._worst = excess.times
            self._say(f"the next batch, {clips} × {seconds:.1f} s, {excess.words}")


def by_memory(memory: Any) -> Predictor:
    """By a ``MemoryModel`` that was traced for a GPU: a simulation of some milliseconds."""
    from ..predict.shape_traces import by_formulas

    if not hasattr(memory, "estimate"):
        raise InvalidArgumentError(
            f"memory = {type(memory).__name__} is not a memory model", "pass what MemoryModel.trace(…) returns"
        )
    limit = memory.target.limit_bytes
    if limit is None:
        raise InvalidArgumentError("the memory model has no GPU given", 'trace it with gpu="L4"')

    def predict(clips: int, seconds: float) -> Excess | None:
        with by_formulas(memory):
            estimate = memory.estimate(clips, seconds, timeline=0)
        if estimate.fits is not False:
            return None
        available = memory.target.available_bytes
        words = f"is predicted to take {estimate.peak_device / GIB:.1f} of {available / GIB:.1f} GiB"
        return Excess(estimate.peak_reserved / max(1, limit), words)

    return predict


def by_table(table: Sequence[tuple[float, int]]) -> Predictor:
    """By rows of seconds and the largest micro-batch, as plans and ``memory_table`` have them."""
    from ..predict.memory_limits import fits_in

    longest = table[-1][0]

    def predict(clips: int, seconds: float) -> Excess | None:
        fits = fits_in(table, min(seconds, longest))
        if clips <= fits:
            return None
        words = f"is more than the {plural(fits, 'clip')} of that length that the plan found to fit"
        return Excess(clips / max(1, fits), words)

    return predict


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
