"""Micro-batches of a collated batch: limits on their size, and retries with smaller ones."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from .._core import native
from .._core.batches import Extent
from .._core.declared import OVERHEAD_S
from .._core.out_of_memory import add_note, classify, first_line, free_memory, remove_traceback
from .._core.output import logger
from .._core.settings import TRACED_MICRO_BATCHES
from ..errors import InfeasiblePlanError, InvalidArgumentError
from ..predict.length_table import GRID_S
from ..predict.shape_traces import by_formulas
from .training_report import GuardEvent

if TYPE_CHECKING:
    from transformers import Trainer

    from ..predict.memory_model import MemoryModel
    from ..trace.made_up_batches import BatchFunction

_PATIENCE = 100  # optimizer steps without a failure before a limit by predicted memory grows
_GROWTH = 1.25


class Budget:
    """The largest micro-batch: at most ``samples``, and after an out-of-memory error at most ``values`` of the input.

    The memory of a step grows with its padded batch, samples × length. Half of a batch that failed is therefore the
    limit, in values, so that short clips form larger micro-batches than long ones. The limit never grows again, as only
    a ``MemoryBudget`` can predict what fits.
    """

    def __init__(self, samples: int | None = None, overhead_s: float | None = None, host_s: float = 0.0) -> None:
        self.samples = samples
        self.overhead_s, self.host_s = overhead_s, host_s
        """What a micro-batch costs besides its padded length, and what it costs at least, in seconds of audio.

        Batches are then split wherever that costs less. Without ``overhead_s`` only batches that are too large are
        split, into as few micro-batches as possible."""
        self.rate: float | None = None
        """Units of length in a second of audio; None for those of the model."""
        self.values: int | None = None
        """The most values of a micro-batch."""
        self.too_long: int | None = None
        """Values of a single sample that did not fit."""
        self._requested = samples

    @property
    def has_failed(self) -> bool:
        """Whether a limit comes from a micro-batch that did not fit, in this training or the one that it resumes."""
        return self.values is not None or self.samples != self._requested

    @property
    def is_limited(self) -> bool:
        """Whether any batch may be too large, or cost less in several micro-batches."""
        return self.samples is not None or self.overhead_s is not None or self.values is not None

    def size(self, extent: Extent, limit: int) -> int:
        """The samples of a micro-batch, 1 to ``limit``, whose longest one has this extent."""
        size = min(limit, self.samples or limit)
        return size if self.values is None else max(1, min(size, self.values // extent.values))

    def shrink(self, extent: Extent, size: int) -> None:
        """Allow at most ``size`` samples of this extent from now on, as more did not fit."""
        self.values = _least(self.values, size * extent.values)

    def lower(self, samples: int | None, values: int | None) -> None:
        """Take over the limits of an earlier attempt, where they are lower than these."""
        self.samples, self.values = _least(self.samples, samples), _least(self.values, values)

    def prediction(self, piece: Piece, kind: str) -> tuple[float, dict[str, Any]] | None:
        """The seconds of a micro-batch, and the request for its memory; ``kind`` is train, evaluate or generate."""
        return None

    def step_done(self) -> None:
        """Called after each optimizer step."""


def _least(one: int | None, other: int | None) -> int | None:
    """The lower of two limits; either may be None."""
    return min((value for value in (one, other) if value is not None), default=None)


class MemoryBudget(Budget):
    """Allows as many samples of each length as a memory model predicts to fit.

    When a micro-batch does not fit in spite of the prediction, half of it becomes the limit, as in ``Budget``. The
    limit grows by a quarter after 100 optimizer steps without a failure, up to what is predicted to fit. After another
    failure it waits for twice as many steps.
    """

    def __init__(
        self,
        memory: MemoryModel,
        limit_bytes: int | None = None,
        samples: int | None = None,
        overhead_s: float | None = None,
        host_s: float = 0.0,
    ) -> None:
        super().__init__(samples, OVERHEAD_S if overhead_s is None else overhead_s, host_s)
        if limit_bytes is None and memory.target.limit_bytes is None:
            raise InvalidArgumentError(
                "the memory model has no GPU given", 'trace it with gpu="L4", or pass memory_limit_bytes'
            )
        self._memory, self._limit = memory, limit_bytes
        self.rate: float = memory.length_per_second
        self._fits: dict[int, int] = {}
        self._steps_without_failure, self._patience = 0, _PATIENCE

    def size(self, extent: Extent, limit: int) -> int:
        """The samples of a micro-batch, 1 to ``limit``, whose longest one has this extent."""
        return min(super().size(extent, limit), self.predicted(extent.length / self.rate))

    def predicted(self, seconds: float) -> int:
        """The largest micro-batch of clips of this duration that is predicted to fit, at least 1."""
        grid_step = max(1, math.ceil(seconds / GRID_S - 1e-9))
        if grid_step not in self._fits:
            shorter = max((step for step in self._fits if step < grid_step), default=0)
            near = max(1, self._fits.get(shorter, 1) * shorter // grid_step)  # what fits falls as lengths rise
            with by_formulas(self._memory):
                length = min(grid_step * GRID_S, self._memory.longest_s)
                fits = self._memory.largest_batch(length, self._limit, near=near)
            self._fits[grid_step] = max(1, fits)
        return self._fits[grid_step]

    def prediction(self, piece: Piece, kind: str) -> tuple[float, dict[str, Any]] | None:
        """See ``Budget.prediction``; transcripts are assumed to have a usual length."""
        from ..predict.memory_settings import Shape

        seconds = piece.extent.length / self.rate
        with by_formulas(self._memory):
            question = self._memory.step_request(Shape(piece.samples, seconds))
        return seconds, {**question, "kind": kind, "limit_bytes": None}

    def shrink(self, extent: Extent, size: int) -> None:
        """Allow at most ``size`` samples of this extent, until the limit grows again."""
        if self.values is not None:
            self._patience *= 2
        super().shrink(extent, size)
        self._steps_without_failure = 0

    def step_done(self) -> None:
        """Count an optimizer step without a failure, and raise the limit after enough of them."""
        if self.values is not None:
            self._steps_without_failure += 1
            if self._steps_without_failure >= self._patience:
                self.values, self._steps_without_failure = math.ceil(self.values * _GROWTH), 0


def traced_for(
    trainer: Trainer, gpu: str | None = None, *, whole_steps: bool = False, batch_fn: BatchFunction | None = None
) -> MemoryModel:
    """The memory model of a trainer's training, on this machine's GPU or one of the catalogue.

    The allocator is simulated with the settings of this process. At least three micro-batches are traced even where the
    Trainer accumulates none: the guard may split any batch, and gradients of one micro-batch are then held during the
    next. With ``whole_steps`` the Trainer gets each optimizer step as one batch; otherwise it holds the inputs of all
    micro-batches that it accumulates. ``batch_fn`` made the batches of the plan, if there was one.
    """
    from ..predict.memory_model import MemoryModel
    from ..predict.memory_settings import allocator_in_force
    from ..predict.trainer_settings import training_settings

    settings = training_settings(trainer.args, trainer.model)
    traced = TRACED_MICRO_BATCHES
    settings["accumulation"] = traced if whole_steps else max(settings["accumulation"], traced)
    return MemoryModel.trace(trainer.model, batch_fn, gpu=gpu, allocator=allocator_in_force(), **settings)


@dataclass
class Retries:
    """Retries of a step or a training, as core/recovery counts them.

    Attributes:
        most: How many there may be.
        repeated: Whether one clip was computed again as it is.
        count: Retries in smaller micro-batches.
        maybes: Retries after errors that may have been about memory.
    """

    most: int
    repeated: bool = False
    count: int = 0
    maybes: int = 0

    def next(self, error_class: str, place: str, micro_batch: int, cannot_split: bool = False) -> dict[str, Any]:
        """What to do after a micro-batch failed in ``place``: an ``action``, and ``micro_batch`` or ``reason``."""
        request = {"class": error_class, "micro_batch": micro_batch, "cannot_split": cannot_split}
        request |= {"evaluation": place == "evaluation", "repeated": self.repeated, "max_retries": self.most}
        decided: dict[str, Any] = native.call(
            "recovery.next", {**request, "retries": self.count, "maybe_retries": self.maybes}
        )
        if decided["action"] == "shrink":
            self.count, self.maybes = decided["retries"], decided["maybe_retries"]
        self.repeated = self.repeated or decided["action"] == "repeat"
        return decided


class CannotRetryError(Exception):
    """Why a batch cannot be computed again: a sentence that is added to the out-of-memory error before it is raised."""


@dataclass
class Piece:
    """A micro-batch that is being computed."""

    samples: int
    extent: Extent
    of_replacement: bool = False
    """Whether the user's function made it from a clip that was too long."""
    cannot_split: str = ""
    """Why it cannot be made smaller; "" where it can."""
    hint: str = ""
    """What the user can do so that it can be made smaller."""


@dataclass(kw_only=True)
class Step:
    """What is computed with retries, and the retries so far.

    Attributes:
        place: As in ``GuardEvent``.
        budget: Its limit is lowered where a micro-batch does not fit.
        first: Computes the step.
        again: Computes it again, after an attempt that failed.
        leave_out: May take a clip that does not fit alone out of the batch; returns whether it did.
        resolve: May remove the cause of an error that is not about memory; returns whether it did.
        host_oom: Whether the step was computed again after host memory ran out.
    """

    place: str
    budget: Budget
    first: Callable[[], Any]
    again: Callable[[], Any]
    leave_out: Callable[[Piece], bool] = lambda _: False
    resolve: Callable[[Exception], bool] = lambda _: False
    host_oom: bool = False


class Attempts:
    """Runs steps of one loop, with smaller micro-batches each time that one does not fit.

    Attributes:
        events: What did not fit, and what was done about it; grows.
        running: The micro-batch that is being computed, or a function that returns it.
        snapshot: Writes a memory snapshot of an error in a place; returns the file's path, "" without one.
    """

    def __init__(
        self,
        max_halvings: int,
        step_number: Callable[[], int],
        ran_short: Callable[[Exception], bool] = lambda _: False,
        snapshot: Callable[[str, Exception], str] = lambda *_: "",
        on_lost_gpu: Callable[[Exception], str] = lambda _: "",
        rank: int | None = None,
    ) -> None:
        """``rank`` is that of this process, where there are several."""
        self._rank = rank
        self._max_halvings, self._step_number, self._ran_short = max_halvings, step_number, ran_short
        self.snapshot, self._on_lost_gpu = snapshot, on_lost_gpu
        self.events: list[GuardEvent] = []
        self.running: Piece | Callable[[], Piece | None] | None = None

    def piece(self) -> Piece | None:
        """The micro-batch that is being computed, or that failed; None where it is unknown."""
        return self.running() if callable(self.running) else self.running

    def run(self, step: Step) -> Any:
        """Compute a step, with smaller micro-batches each time that one does not fit; returns what the step returns.

        A single clip is retried unchanged, as other memory may have been freed.
        """
        attempt, failed, raised_in = step.first, None, ""
        retries = Retries(self._max_halvings)
        while True:
            self.running, began = None, time.perf_counter()
            try:
                return attempt()
            except CannotRetryError as reason:
                if failed is None:  # the step was split from the start
                    raise InfeasiblePlanError(str(reason), "use smaller batches") from reason
                if retries.maybes:
                    self.explain(failed, classify(failed))
                add_note(failed, f"the step was not computed again: {reason}")
                add_note(failed, f"it ran out of memory in\n{raised_in}")
                raise failed from None
            except Exception as error:
                proceed = self._decide(error, step, retries, self.piece())
                if proceed is None:
                    raise
                raised_in, failed = remove_traceback(error), error
            # Outside of the except block: nothing holds the failed attempt any more.
            free_memory()
            proceed(time.perf_counter() - began)
            attempt = step.again

    def note(
        self, place: str, text: str, snapshot: str = "", *, before: int = 0, after: int = 0, lost_s: float = 0.0
    ) -> None:
        """Add an event, and log it; ``before`` and ``after`` are clips of a micro-batch."""
        self.events.append(
            GuardEvent(place, self._step_number(), before, after, text, lost_s, snapshot, rank=self._rank)
        )
        logger.warning("%s", self.events[-1])

    def not_restored(self, paths: list[str]) -> None:
        """Add to the newest event of the step what could not be put back before it was computed again, and log it."""
        step = self._step_number()
        is_noted = bool(self.events) and self.events[-1].global_step == step
        event = self.events[-1] if is_noted else GuardEvent("training", step, 0, 0, "")
        names = tuple(dict.fromkeys((*event.not_restored, *paths)))
        if names == event.not_restored:
            return
        event = replace(event, not_restored=names)
        if is_noted:
            self.events[-1] = event
        logger.warning("recovered in step %d, but %s", step, event.lost)

    def _decide(
        self, error: Exception, step: Step, retries: Retries, piece: Piece | None
    ) -> Callable[[float], None] | None:
        """Decide how to continue after ``error``, and lower the budget of the step.

        Returns a function that notes the retry, given the seconds that the attempt took, and None where ``error`` is to
        be raised. Raises ``InfeasiblePlanError`` where nothing is left to try.
        """
        diagnosis, text = classify(error), first_line(error)
        if diagnosis["class"] == "host_oom" and not step.host_oom and self._ran_short(error):
            step.host_oom = True  # computed again as it is: a smaller micro-batch does not help
            return lambda _: None
        if diagnosis["class"] == "other":
            return (lambda _: None) if step.resolve(error) else None
        saved = self.snapshot(step.place, error)
        if diagnosis["class"] not in ("gpu_oom", "maybe") or piece is None:
            self.explain(error, diagnosis)
            return None

        def noted(place: str, after: int) -> Callable[[float], None]:
            return lambda lost_s: self.note(place, text, saved, before=piece.samples, after=after, lost_s=lost_s)

        decided = retries.next(diagnosis["class"], step.place, piece.samples, bool(piece.cannot_split))
        match decided["action"]:
            case "shrink":
                step.budget.shrink(piece.extent, decided["micro_batch"])
                return noted(step.place, decided["micro_batch"])
            case "repeat":
                return noted(step.place, piece.samples)
            case "raise":
                add_note(error, decided["reason"])
                return None
            case "leave_out" if step.leave_out(piece):
                return noted("skipped", 0)
        cause = f"; its batch cannot be split: {piece.cannot_split}" if piece.cannot_split else ""
        where = f"; memory snapshot in {saved}" if saved else ""
        raise InfeasiblePlanError(
            f"step {self._step_number()} ({step.place}) ran out of GPU memory: {text}{cause}{where}",
            decided["reason"] + (f", or {piece.hint}" if piece.hint else ""),
        ) from error

    def explain(self, error: Exception, diagnosis: dict[str, Any]) -> None:
        """Add to an error, before it is raised, what it means and what was saved."""
        if diagnosis["class"] == "poisoned":
            add_note(error, "; ".join(filter(None, (diagnosis["advice"], self._on_lost_gpu(error)))))
        elif diagnosis["class"] != "other":
            add_note(error, diagnosis["advice"])
