"""``Guard``: around the training step of one Trainer."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .. import _lib
from .._errors import InfeasiblePlanError, InvalidArgumentError
from ..gradient_scale import override
from ..out_of_memory import classify, clear_frames, first_line, free_memory, note
from .losses import WeightedLosses
from .randomness import cpu_generators_kept, seed_cpu
from .split import batch_size, like, split
from .weights import RULES
from .window import Call, Window

logger = logging.getLogger("asrconfig_go")

_KEY = "_asrconfig_guard"


@dataclass(frozen=True)
class GuardEvent:
    """GPU memory ran out: in which optimizer step, the micro-batch before and after, and the error's first line."""

    global_step: int
    micro_batch_before: int
    micro_batch_after: int
    error: str


class Guard:
    """Keeps a Trainer's optimizer steps what they are, however small the micro-batches must be.

    - When a training step runs out of GPU memory, what it holds is freed, gradients are cleared, the random numbers put
      back, and the whole accumulation window is computed again in micro-batches of half the size, which stay. Steps,
      samples, their order, the schedule, checkpoints and logged losses are those of a run in which nothing happened;
      gradients are, up to rounding, where nothing random is drawn. Dropout draws other masks for other micro-batches.
    - Micro-batches are weighted by what the loss divides by (see ``weights``), so that 16 × 1, 8 × 2 and 1 × 16 follow
      the same gradient; by itself the Trainer multiplies that of most speech models by the accumulation steps.

    Not yet guarded: the optimizer's step, evaluation, several processes or GPUs.
    """

    def __init__(
        self,
        trainer: Any,
        *,
        max_halvings: int = 3,
        micro_batch: int | None = None,
        rule: str | None = None,
        split: Callable[[Any, int], list[Any]] | None = None,
    ) -> None:
        _check(trainer, max_halvings, micro_batch, rule)
        self.trainer, self.max_halvings, self.micro_batch = trainer, max_halvings, micro_batch
        self.events: list[GuardEvent] = []
        self._split = split
        self._losses = WeightedLosses(trainer, rule)
        self._window = Window(trainer)
        self._undo: list[Callable[[], None]] = []

    def attach(self) -> Guard:
        """Take effect, until ``detach``; a second time does nothing."""
        if not self._undo:
            trainer = self.trainer
            self._train_step = trainer.training_step
            self._undo = [
                override(trainer, "training_step", self._training_step),
                override(trainer, "get_batch_samples", self._window.collecting(trainer.get_batch_samples)),
                self._losses.install(),
            ]
            setattr(trainer, _KEY, self)
        return self

    def detach(self) -> None:
        """Leave the Trainer as it was found."""
        for undo in reversed(self._undo):
            undo()
        self._undo = []
        self._window.clear()
        self.trainer.__dict__.pop(_KEY, None)

    @property
    def rule(self) -> str | None:
        """What a micro-batch's loss is weighted by: ``mean``, ``token_mean``, ``sum``; None before the first batch."""
        return self._losses.rule

    def _training_step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        call = self._window.begin(inputs)
        halvings = maybes = 0

        def step(call: Call) -> Any:
            return self._step(model, call, args, kwargs)

        with cpu_generators_kept():
            loss = self._attempt([call], step, halvings, maybes)
            while loss is None:
                halvings, maybes = self._decided["retries"], self._decided["maybe_retries"]
                self._make_room(model)
                loss = self._attempt(self._window.calls, step, halvings, maybes)
        return loss

    def _attempt(self, calls: list[Call], step: Callable[[Call], Any], halvings: int, maybes: int) -> Any:
        """The loss of the last of ``calls``, or None when memory ran out and there is something left to try."""
        loss = None
        try:
            for call in calls:
                loss = step(call)
            return loss
        except Exception as error:
            decided = self._decide(error, [call.inputs for call in calls], halvings, maybes)
            if decided is None:
                raise
            clear_frames(error)
            self._decided = decided
        return None

    def _step(self, model: Any, call: Call, args: Any, kwargs: Any) -> Any:
        """Forward and backward of one collated batch, in micro-batches."""
        seed_cpu(call.seed)
        whole = batch_size(call.inputs)
        size = self.micro_batch or whole
        parts = (self._split or split)(call.inputs, size) if size < whole else [like(call.inputs, dict(call.inputs))]
        total = 0.0
        for part in parts:
            total = total + self._losses.step(self._train_step, self._window.totals, model, part, args, kwargs)
        return total

    def _decide(self, error: Exception, calls: list[Any], halvings: int, maybes: int) -> dict[str, Any] | None:
        found = classify(error)
        if found["class"] not in ("gpu_oom", "maybe"):
            if found["class"] != "other":
                note(error, found["advice"])
            return None
        before = min(self.micro_batch or batch_size(calls[-1]), max(map(batch_size, calls)))
        state = {"class": found["class"], "micro_batch": before, "accumulation": 1, "cut": True}
        state |= {"retries": halvings, "maybe_retries": maybes, "max_retries": self.max_halvings}
        decided: dict[str, Any] = _lib.call("recovery.next", state)
        if not decided["retry"]:
            if found["class"] == "maybe":
                note(error, decided["reason"])
                return None
            message = f"step {self.trainer.state.global_step} ran out of GPU memory: {first_line(error)}"
            raise InfeasiblePlanError(message, decided["reason"]) from error
        event = GuardEvent(self.trainer.state.global_step, before, decided["micro_batch"], first_line(error))
        self.events.append(event)
        return decided

    def _make_room(self, model: Any) -> None:
        """Free what the failed attempt holds, and go back to where the window began."""
        event = self.events[-1]
        model.zero_grad(set_to_none=True)
        free_memory()
        self._window.rewind()
        self.micro_batch = event.micro_batch_after
        logger.warning(
            "step %d ran out of GPU memory with a micro-batch of %d; computed again with %d, the same effective batch",
            event.global_step,
            event.micro_batch_before,
            event.micro_batch_after,
        )

    def __repr__(self) -> str:
        size = self.micro_batch or self.trainer.args.per_device_train_batch_size
        lines = [
            f"Guard of {type(self.trainer).__name__}: micro-batch {size}, weights by {self.rule or 'not known yet'}"
        ]
        lines += [
            f"  step {e.global_step}: {e.micro_batch_before} → {e.micro_batch_after} after {e.error}"
            for e in self.events
        ]
        return "\n".join(lines)


def attach(trainer: Any, **options: Any) -> Guard:
    """The guard of ``trainer``, made if there is none; one that is there takes no other options."""
    existing: Guard | None = getattr(trainer, _KEY, None)
    if existing is None:
        return Guard(trainer, **options).attach()
    if options:
        raise InvalidArgumentError("the trainer is guarded already", "call detach() of its guard to change options")
    return existing


def _check(trainer: Any, max_halvings: Any, micro_batch: Any, rule: Any) -> None:
    from ..recovery import single_process

    for name in ("training_step", "get_batch_samples", "compute_loss", "accelerator"):
        if not hasattr(trainer, name):
            raise InvalidArgumentError(f"{type(trainer).__name__} has no {name}", "pass a transformers.Trainer")
    if not single_process(trainer) or trainer.args.n_gpu > 1:
        raise InvalidArgumentError(
            "several processes or GPUs are not guarded yet: one would wait for the others",
            "use manager.train, which says what to restart with",
        )
    for name, value in (("max_halvings", max_halvings), ("micro_batch", micro_batch or 1)):
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 100_000:
            raise InvalidArgumentError(f"{name} = {value!r} is not a whole number", "3 halvings are usual")
    if rule not in (None, *RULES):
        raise InvalidArgumentError(f"rule = {rule!r} is not known", f"one of {', '.join(RULES)}, or None to find out")
