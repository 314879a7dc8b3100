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
from ..randomness import cpu_generators_kept, seed_cpu
from .budget import Budget
from .evaluation import evaluation_rule, predict_in_parts
from .losses import WeightedLosses
from .split import batch_size, like, split
from .weights import RULES
from .window import Call, Window

logger = logging.getLogger("asrconfig_go")

_KEY = "_asrconfig_guard"


@dataclass(frozen=True)
class GuardEvent:
    """GPU memory ran out: in which optimizer step, the micro-batch before and after, and the error's first line.

    ``place`` is ``"training"`` or ``"evaluation"``, which have micro-batches of their own.
    """

    place: str
    global_step: int
    micro_batch_before: int
    micro_batch_after: int
    error: str


class Guard:
    """Keeps a Trainer's optimizer steps what they are, however small the micro-batches must be.

    - When a training step runs out of GPU memory, what it holds is freed, gradients are cleared, the random numbers put
      back, and the whole accumulation window is computed again in micro-batches of half the size. Half of what failed
      stays the limit, in samples × padded length: shorter clips ride in larger micro-batches. Steps, samples, their
      order, the schedule, checkpoints and logged losses are those of a run in which nothing happened; gradients are, up
      to rounding, where nothing random is drawn. Dropout draws other masks for other micro-batches.
    - Micro-batches are weighted by what the loss divides by (see ``weights``), so that 16 × 1, 8 × 2 and 1 × 16 follow
      the same gradient; by itself the Trainer multiplies that of most speech models by the accumulation steps.
    - Evaluation and prediction do the same for each batch, with the results of the whole one.

    Not yet guarded: the optimizer's step, saving, several processes or GPUs. ``micro_batch`` limits the samples of a
    micro-batch from the beginning; ``split`` cuts batches whose entries do not all have one value for each sample.
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
        self.trainer, self.max_halvings = trainer, max_halvings
        self.budgets = {"training": Budget(micro_batch), "evaluation": Budget(None)}
        self.events: list[GuardEvent] = []
        self._running: Any = None  # the batch that is being computed
        self._split = split
        self._losses = WeightedLosses(trainer, rule)
        self._window = Window(trainer)
        self._undo: list[Callable[[], None]] = []

    def attach(self) -> Guard:
        """Take effect, until ``detach``; a second time does nothing."""
        if not self._undo:
            trainer = self.trainer
            self._train_step, self._predict = trainer.training_step, trainer.prediction_step
            self._undo = [
                override(trainer, "prediction_step", self._prediction_step),
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

        def again() -> Any:
            self._window.rewind()
            return [self._step(model, each, args, kwargs) for each in self._window.calls][-1]

        with cpu_generators_kept():
            return self._until_it_fits("training", model, lambda: self._step(model, call, args, kwargs), again)

    def _step(self, model: Any, call: Call, args: Any, kwargs: Any) -> Any:
        """Forward and backward of one collated batch, in micro-batches; its weighted loss."""
        seed_cpu(call.seed)
        total = 0.0
        for part in self._parts("training", call.inputs):
            total = total + self._losses.step(self._train_step, self._window.totals, model, part, args, kwargs)
        return total

    def _prediction_step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        def predict(part: Any) -> Any:
            return self._predict(model, part, *args, **kwargs)

        def attempt() -> Any:
            parts = self._parts("evaluation", inputs)
            if len(parts) == 1:
                return predict(parts[0])
            return predict_in_parts(self.trainer, predict, parts, evaluation_rule(self.trainer, self.rule))

        return self._until_it_fits("evaluation", model, attempt, attempt)

    def _parts(self, place: str, inputs: Any) -> list[Any]:
        """A batch in micro-batches as large as may be; copies, as the Trainer may take entries out of them."""
        self._running = inputs
        size = self.budgets[place].size(inputs)
        return (self._split or split)(inputs, size) if size < batch_size(inputs) else [like(inputs, dict(inputs))]

    def _until_it_fits(self, place: str, model: Any, first: Callable[[], Any], again: Callable[[], Any]) -> Any:
        """What ``first`` gives, or else ``again`` with smaller micro-batches."""
        halvings = maybes = 0
        attempt, budget = first, self.budgets[place]
        while True:
            try:
                return attempt()
            except Exception as error:
                decided = self._decide(error, place, budget.size(self._running), halvings, maybes)
                if decided is None:
                    raise
                clear_frames(error)
            finally:
                failed, self._running = self._running, None
            # Outside of the except block: nothing holds the failed attempt any more.
            budget.shrink(failed, decided["micro_batch"])
            halvings, maybes = decided["retries"], decided["maybe_retries"]
            if place == "training":
                model.zero_grad(set_to_none=True)
            free_memory()
            attempt = again

    def _decide(self, error: Exception, place: str, before: int, halvings: int, maybes: int) -> dict[str, Any] | None:
        """How to go on after ``error``; None when it is to be raised. Giving up raises ``InfeasiblePlanError``."""
        found = classify(error)
        if found["class"] not in ("gpu_oom", "maybe"):
            if found["class"] != "other":
                note(error, found["advice"])
            return None
        state = {"class": found["class"], "micro_batch": before, "accumulation": 1, "cut": True}
        state |= {"retries": halvings, "maybe_retries": maybes, "max_retries": self.max_halvings}
        decided: dict[str, Any] = _lib.call("recovery.next", state)
        step = self.trainer.state.global_step
        if not decided["retry"]:
            if found["class"] == "maybe":
                note(error, decided["reason"])
                return None
            message = f"step {step} ({place}) ran out of GPU memory: {first_line(error)}"
            raise InfeasiblePlanError(message, decided["reason"]) from error
        after = decided["micro_batch"]
        self.events.append(GuardEvent(place, step, before, after, first_line(error)))
        logger.warning(
            "step %d (%s) ran out of GPU memory with a micro-batch of %d; computed again with %d, the same result",
            step,
            place,
            before,
            after,
        )
        return decided

    def __repr__(self) -> str:
        rule = self.rule or "(not known yet)"
        lines = [f"Guard of {type(self.trainer).__name__}: weights by {rule}; out of memory {len(self.events)} times"]
        for e in self.events:
            sizes = f"{e.micro_batch_before} → {e.micro_batch_after}"
            lines.append(f"  step {e.global_step} ({e.place}): {sizes} after {e.error}")
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

    for name in ("training_step", "prediction_step", "get_batch_samples", "compute_loss", "accelerator"):
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
