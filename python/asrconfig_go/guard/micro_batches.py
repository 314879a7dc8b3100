"""Micro-batches of a collated batch: limits on their size, and retries with smaller ones."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from .._core import native
from .._core.batches import Extent
from .._core.declared import OVERHEAD_S
from .._core.defaults import SAMPLING_RATE
from .._core.out_of_memory import add_note, classify, first_line, free_memory, remove_traceback
from ..errors import InfeasiblePlanError, InvalidArgumentError
from ..predict.opened_trace import GRID_S
from ..predict.shape_traces import by_formulas
from .training_report import GuardEvent

if TYPE_CHECKING:
    from transformers import Trainer

    from ..predict.memory_model import MemoryModel
    from ..trace.made_up_batches import BatchFunction
    from .oom_snapshots import Predicted

logger: logging.Logger = logging.getLogger("asrconfig_go")

_TRACED = 3  # micro-batches of a traced step: the first, one with gradients beside it, and the last
_PATIENCE = 100  # optimizer steps without a failure before a limit by predicted memory grows
_GROWTH = 1.25


class Budget:
    """At most ``samples`` a micro-batch, and once one has not fitted, at most a number of values of the model's input.

    What a step needs grows with the padded batch, samples × length: half of a batch that failed is a limit that lets
    short clips form larger micro-batches than long ones. The limit never grows again: nothing here knows why it
    should. ``MemoryBudget`` does.
    """

    def __init__(self, samples: int | None = None, overhead_s: float | None = None, host_s: float = 0.0) -> None:
        self.samples = samples
        self.overhead_s, self.host_s = overhead_s, host_s
        """What a micro-batch costs besides its padded length, and what it costs at least, in seconds of audio; batches
        are then split wherever that costs less. None: only batches that are too large, into as few micro-batches as can
        be."""
        self.rate: float | None = None
        """Units of length in a second of audio; None: the model's own."""
        self.values: int | None = None
        """The most values of a micro-batch."""
        self.too_long: int | None = None
        """Values of a single sample that did not fit."""
        self.is_limited = samples is not None or overhead_s is not None
        """Whether any batch may be too large, or cost less in several micro-batches."""
        self.has_failed = False
        """Whether a limit comes from a micro-batch that did not fit, in this training or the one that it resumes."""

    def size(self, extent: Extent, limit: int) -> int:
        """The samples of a micro-batch, 1 to ``limit``, whose longest one has this extent."""
        size = min(limit, self.samples or limit)
        return size if self.values is None else max(1, min(size, self.values // extent.values))

    def shrink(self, extent: Extent, size: int) -> None:
        """From now on no more than ``size`` samples of this extent: more did not fit."""
        self.has_failed = self.is_limited = True
        self.values = _least(self.values, size * extent.values)

    def lower(self, samples: int | None, values: int | None) -> None:
        """Limits that an earlier attempt came to, as far as they are below ours."""
        before = self.samples
        self.samples, self.values = _least(before, samples), _least(self.values, values)
        if self.values is not None or self.samples != before:
            self.has_failed = self.is_limited = True

    def prediction(self, samples: int, extent: Extent, kind: str) -> Predicted | None:
        """The predicted memory of micro-batches of this shape; ``kind`` is train, evaluate or generate."""
        return None

    def step_done(self) -> None:
        """An optimizer step has been taken."""


def _least(one: int | None, other: int | None) -> int | None:
    """The lower of two limits; either may be None."""
    return min((value for value in (one, other) if value is not None), default=None)


class MemoryBudget(Budget):
    """As many samples of each length as the memory model predicts to fit.

    After a micro-batch has not fitted nevertheless, half of it is the limit, as in ``Budget``. It grows by a quarter
    after 100 optimizer steps without a failure, as far as the model predicts that it fits; when it then fails again,
    the next attempt waits twice as long.
    """

    def __init__(
        self,
        memory: MemoryModel,
        limit_bytes: int | None = None,
        samples: int | None = None,
        overhead_s: float = OVERHEAD_S,
        host_s: float = 0.0,
    ) -> None:
        super().__init__(samples, overhead_s, host_s)
        if limit_bytes is None and memory.target.limit_bytes is None:
            raise InvalidArgumentError(
                "the memory model has no GPU given", 'trace it with gpu="L4", or pass memory_limit_bytes'
            )
        self._memory, self._limit = memory, limit_bytes
        self.rate: float = float(memory.about.get("length_per_second") or SAMPLING_RATE)
        self._fits: dict[int, int] = {}
        self._waited, self._patience = 0, _PATIENCE

    def size(self, extent: Extent, limit: int) -> int:
        """The samples of a micro-batch, 1 to ``limit``, whose longest one has this extent."""
        return min(super().size(extent, limit), self.predicted(extent.length / self.rate))

    def predicted(self, seconds: float) -> int:
        """The largest micro-batch of clips of this duration that is predicted to fit, at least 1."""
        step = max(1, math.ceil(seconds / GRID_S - 1e-9))
        if step not in self._fits:
            with by_formulas(self._memory):
                self._fits[step] = max(1, self._memory.largest_batch(step * GRID_S, self._limit))
        return self._fits[step]

    def prediction(self, samples: int, extent: Extent, kind: str) -> Predicted | None:
        """The predicted memory of micro-batches of this shape; transcripts are assumed to have a usual length."""
        from ..predict.memory_settings import Shape
        from .oom_snapshots import Predicted

        seconds = extent.length / self.rate
        with by_formulas(self._memory):
            question = self._memory.step_request(Shape(samples, seconds, None))
        return Predicted(samples, seconds, {**question, "kind": kind, "limit_bytes": None})

    def shrink(self, extent: Extent, size: int) -> None:
        """From now on, for a while, no more than ``size`` samples of this extent."""
        if self.values is not None:
            self._patience *= 2
        super().shrink(extent, size)
        self._waited = 0

    def step_done(self) -> None:
        """Count an optimizer step without a failure, and grow after enough of them."""
        if self.values is not None:
            self._waited += 1
            if self._waited >= self._patience:
                self.values, self._waited = math.ceil(self.values * _GROWTH), 0


def traced_for(
    trainer: Trainer, gpu: str | None = None, *, whole_steps: bool = False, batch_fn: BatchFunction | None = None
) -> MemoryModel:
    """The memory model of a trainer's training, on this machine's GPU or one of the catalogue.

    The allocator is simulated with the settings that are in effect here. The guard may split any batch, so that
    gradients of one micro-batch are held during the next one also where the Trainer itself accumulates none. The
    Trainer holds the inputs of all micro-batches that it accumulates; ``whole_steps`` is whether it gets a step in one
    batch, so that there are no others. ``batch_fn`` is what the model was planned with.
    """
    from ..predict.memory_model import MemoryModel, training_settings
    from ..predict.memory_settings import allocator_in_force

    settings = training_settings(trainer.args, trainer.model)
    settings["accumulation"] = _TRACED if whole_steps else max(settings["accumulation"], _TRACED)
    return MemoryModel.trace(trainer.model, batch_fn, gpu=gpu, allocator=allocator_in_force(), **settings)


class CannotRetryError(Exception):
    """Why a batch cannot be computed again; the error of memory is then raised as it is, with this sentence."""


@dataclass
class Piece:
    """A micro-batch that is being computed."""

    samples: int
    extent: Extent
    of_replacement: bool = False
    """Made by the user's function from a clip that was too long."""
    cannot_split: str = ""
    """Why it cannot be made smaller, if it cannot."""
    hint: str = ""
    """What would let it be made smaller."""

    @property
    def is_one_clip(self) -> bool:
        """Whether it is one clip of a batch of the loop's."""
        return self.samples == 1 and not self.cannot_split and not self.of_replacement


@dataclass(kw_only=True)
class Step:
    """What is computed with retries, and what has happened in it so far.

    Attributes:
        place: As in ``GuardEvent``.
        budget: What shrinks where a micro-batch does not fit.
        first: Computes the step.
        again: Computes it once more, after an attempt that failed.
        leave_out: May take a clip that does not fit alone out of the batch; returns whether it did.
        resolve: May resolve an error that is not of memory; returns whether it did.
    """

    place: str
    budget: Budget
    first: Callable[[], Any]
    again: Callable[[], Any]
    leave_out: Callable[[Piece], bool] = lambda _: False
    resolve: Callable[[Exception], bool] = lambda _: False
    halvings: int = 0
    maybes: int = 0
    repeated: bool = False
    host_oom: bool = False


class Attempts:
    """Runs steps of one loop, with smaller micro-batches each time that one does not fit.

    Attributes:
        events: What did not fit, and what was done about it; grows.
        running: What is being computed: a piece, or a function that returns it.
    """

    def __init__(
        self,
        max_halvings: int,
        step_number: Callable[[], int],
        ran_short: Callable[[Exception], bool] = lambda _: False,
        snapshot: Callable[[str, Exception], str] = lambda *_: "",
        on_lost_gpu: Callable[[Exception], str] = lambda _: "",
    ) -> None:
        self._max_halvings, self._step_number, self._ran_short = max_halvings, step_number, ran_short
        self._snapshot, self._on_lost_gpu = snapshot, on_lost_gpu
        self.events: list[GuardEvent] = []
        self.running: Piece | Callable[[], Piece | None] | None = None

    def piece(self) -> Piece | None:
        """What is being computed, or was when it failed."""
        return self.running() if callable(self.running) else self.running

    def run(self, step: Step) -> Any:
        """What ``first`` of a step returns, or else ``again``, each time after its budget has shrunk.

        One clip is retried as it is, as other memory may have been freed.
        """
        attempt, failed, raised_in = step.first, None, ""
        while True:
            self.running, began = None, time.perf_counter()
            try:
                return attempt()
            except CannotRetryError as reason:
                if failed is None:  # a step that was to be split from the start
                    raise InfeasiblePlanError(str(reason), "use smaller batches") from reason
                if step.maybes:
                    self.explain(failed, classify(failed))
                add_note(failed, f"the step was not computed again: {reason}")
                add_note(failed, f"it ran out of memory in\n{raised_in}")
                raise failed from None
            except Exception as error:
                proceed = self._decide(error, step, self.piece())
                if proceed is None:
                    raise
                raised_in, failed = remove_traceback(error), error
            # Outside of the except block: nothing holds the failed attempt any more.
            free_memory()
            proceed(time.perf_counter() - began)
            attempt = step.again

    def note(self, place: str, before: int, after: int, text: str, lost_s: float = 0.0, snapshot: str = "") -> None:
        """Add an event, and log it."""
        self.events.append(GuardEvent(place, self._step_number(), before, after, text, lost_s, snapshot))
        logger.warning("%s", self.events[-1])

    def not_restored(self, paths: list[str]) -> None:
        """A step was computed again, but for what cannot be put back; it is added to the step's newest event."""
        event, step = self.events[-1] if self.events else None, self._step_number()
        if event is None or event.global_step != step:
            event = GuardEvent("training", step, 0, 0, "")
        paths = list(dict.fromkeys(path for path in paths if path not in event.not_restored))
        if not paths:
            return
        event = replace(event, not_restored=(*event.not_restored, *paths))
        if self.events and self.events[-1].global_step == step:
            self.events[-1] = event
        logger.warning("recovered in step %d, but %s", step, event.lost)

    def _decide(self, error: Exception, step: Step, piece: Piece | None) -> Callable[[float], None] | None:
        """How to continue after ``error``; None when it is to be raised. Giving up raises ``InfeasiblePlanError``."""
        diagnosis, text = classify(error), first_line(error)
        if diagnosis["class"] == "host_oom" and not step.host_oom and self._ran_short(error):
            step.host_oom = True  # retried as it is: a smaller micro-batch does not help
            return lambda _: None
        if diagnosis["class"] == "other":
            return (lambda _: None) if step.resolve(error) else None
        saved = self._snapshot(step.place, error)
        if diagnosis["class"] not in ("gpu_oom", "maybe") or piece is None:
            self.explain(error, diagnosis)
            return None

        def noted(place: str, after: int) -> Callable[[float], None]:
            return lambda lost_s: self.note(place, piece.samples, after, text, lost_s, saved)

        decided = native.call("recovery.next", {
            "class": diagnosis["class"], "micro_batch": piece.samples, "cannot_split": bool(piece.cannot_split),
            "repeated": step.repeated, "retries": step.halvings, "maybe_retries": step.maybes,
            "max_retries": self._max_halvings,
        })  # fmt: skip
        match decided["action"]:
            case "shrink":
                step.budget.shrink(piece.extent, decided["micro_batch"])
                step.halvings, step.maybes = decided["retries"], decided["maybe_retries"]
                return noted(step.place, decided["micro_batch"])
            case "repeat":
                step.repeated = True
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
        """Add to an error that is raised what it means, and what was saved."""
        if diagnosis["class"] == "poisoned":
            add_note(error, "; ".join(filter(None, (diagnosis["advice"], self._on_lost_gpu(error)))))
        elif diagnosis["class"] != "other":
            add_note(error, diagnosis["advice"])
