"""``Guard``: around the training of one Trainer."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import torch

from .._errors import InvalidArgumentError
from .._override import override
from ..batching.table import OVERHEAD_S
from ..display import plural
from ..randomness import cpu_generators_kept, seed_cpu
from ..training_report import GuardEvent
from .attempts import Attempts, Piece
from .budget import Budget
from .callback import GuardCallback
from .check import cannot_retry, caveats, check_options, check_trainer, check_windows
from .cut import by_length, evenly, is_cut
from .elsewhere import evaluating, move_predictions_off, predictions_back, saving
from .evaluation import evaluation_rule, predict_in_parts
from .left_out import LeftOut
from .lengths import extent
from .loading import Loading
from .losses import WeightedLosses
from .memory_budget import MemoryBudget
from .optimizer import OptimizerSteps
from .preflight import PreflightReport, preflight as try_worst
from .ranks import Ranks
from .split import batch_size, like
from .step_times import follow_steps
from .window import Call, Window

logger = logging.getLogger("asrconfig_go")

KEY = "_asrconfig_guard"


class Guard:
    """Keeps a Trainer's optimizer steps what they are, however small the micro-batches must be.

    - When a training step runs out of GPU memory, what it holds is freed, gradients are cleared, the random numbers put
      back, and the whole accumulation window is computed again in micro-batches of half the size. Half of what failed
      stays the limit, in samples × padded length: shorter clips ride in larger micro-batches. Steps, samples, their
      order, the schedule, checkpoints and logged losses are those of a run in which nothing happened; gradients are, up
      to rounding, where nothing random is drawn. Dropout draws other masks for other micro-batches.
    - Micro-batches are weighted by what the loss divides by (see ``weights``), so that 16 × 1, 8 × 2 and 1 × 16 follow
      the same gradient; by itself the Trainer multiplies that of most speech models by the accumulation steps.
    - Evaluation and prediction do the same for each batch, with the results of the whole one. The optimizer's step and
      saving are done once more where that is exact.
    - Several processes (DDP) compute their windows independently and then average: see ``ranks``. With DeepSpeed, FSDP
      and several GPUs in one process only the weights are kept right; running out of memory is explained and raised.

    ``max_halvings`` is for each step (3, or down to one sample where clips may be left out); ``micro_batch`` limits the
    samples of a micro-batch from the beginning. ``memory`` is a ``MemoryModel`` (and ``memory_limit_bytes`` what the
    allocator may reserve): batches are then cut from the start by the predicted memory of their lengths, in the way
    that costs least: a micro-batch of n clips, the longest of s seconds, is counted as n · s + ``overhead_s`` (4 by
    default). Without ``memory``, ``overhead_s`` cuts batches wherever that saves more padding. ``rule`` and
    ``split`` are for losses and batches of an unknown kind. ``too_long`` says what becomes of a clip that does not fit
    alone: ``"raise"``, ``"skip"``, or a function that gets it as a batch of one and gives a list of shorter batches.
    With ``preflight`` the optimizer's states and the worst batches are tried before the first step; a number says how
    many seconds the longest clip lasts.
    """

    def __init__(
        self,
        trainer: Any,
        *,
        max_halvings: int | None = None,
        micro_batch: int | None = None,
        memory: Any = None,
        memory_limit_bytes: int | None = None,
        overhead_s: float | None = None,
        rule: str | None = None,
        split: Callable[[Any, int], list[Any]] | None = None,
        too_long: str | Callable[[Any], list[Any]] = "raise",
        preflight: bool | float = False,
    ) -> None:
        check_options(max_halvings, micro_batch, overhead_s, rule, too_long, preflight)
        check_trainer(trainer)
        self.trainer = trainer
        training = Budget(micro_batch, overhead_s)
        if memory is not None:
            cost = OVERHEAD_S if overhead_s is None else overhead_s
            training = MemoryBudget(memory, memory_limit_bytes, micro_batch, cost)
        self.budgets = {"training": training, "evaluation": Budget()}
        self.events: list[GuardEvent] = []
        self.notes = caveats(trainer)
        """What of this training the guard cannot keep the same, said once when it takes effect."""
        self._split, self._preflight = split, preflight
        self.preflight: PreflightReport | None = None
        """What was tried before the first step, if it was."""
        ranks = Ranks(trainer)
        self._ranks = ranks
        self._losses, self._window = WeightedLosses(trainer, rule, ranks), Window(trainer, ranks)
        self._left_out = LeftOut(too_long, self.budgets["training"], self._window)
        if max_halvings is None:
            max_halvings = 3 if too_long == "raise" else 20
        self._loading = Loading(trainer, self._once_more)
        self._attempts = Attempts(trainer, max_halvings, self.events, self._loading.ran_short)
        self._optimizer = OptimizerSteps(trainer, self._once_more)
        self._undo: list[Callable[[], None]] = []

    def attach(self) -> Guard:
        """Take effect, until ``detach``; a second time does nothing."""
        if not self._undo:
            trainer = self.trainer
            self._train_step, self._predict = trainer.training_step, trainer.prediction_step
            self._wrapped = {
                "prediction_step": self._prediction_step,
                "training_step": self._training_step,
                "get_batch_samples": self._window.collecting(self._loading.fetching(trainer.get_batch_samples)),
                "evaluation_loop": evaluating(trainer, self._once_more),
                "_save_checkpoint": saving(trainer, self._once_more),
            }
            self._undo = [override(trainer, name, function) for name, function in self._wrapped.items()]
            self._undo += [self._losses.install(), self._optimizer.remove, self._listen(), predictions_back(trainer)]
            self._undo.append(follow_steps(trainer.callback_handler))
            setattr(trainer, KEY, self)
            for note in self.notes:
                logger.warning(note)
        return self

    def on_detach(self, undo: Callable[[], None]) -> None:
        """Call ``undo`` first when the guard is detached: of what goes with it."""
        self._undo.append(undo)

    def detach(self) -> None:
        """Leave the Trainer as it was found.

        Raises ``InvalidArgumentError``, with nothing changed, when something else has wrapped its methods since.
        """
        own = self._wrapped.items() if self._undo else ()
        over = [name for name, function in own if self.trainer.__dict__.get(name) is not function]
        if over:
            raise InvalidArgumentError(f"something has wrapped {', '.join(over)} after the guard", "undo that first")
        for undo in reversed(self._undo):
            undo()
        self._undo = []
        self._window.clear()
        self.trainer.__dict__.pop(KEY, None)

    def _listen(self) -> Callable[[], None]:
        callback = GuardCallback(self._training_begins, self._loading.epoch_begins, self.events)
        self.trainer.add_callback(callback)
        return lambda: self.trainer.remove_callback(callback)

    def _training_begins(self) -> None:
        """The Trainer has made its optimizer and wrapped its model."""
        self._optimizer.follow()
        carried = check_windows(self.trainer, self._ranks.size)
        if carried and carried not in self.notes:
            self.notes += (carried,)
            logger.warning(carried)
        if self._preflight and not cannot_retry(self.trainer):
            seconds = None if self._preflight is True else float(self._preflight)
            with self._ranks.joined():
                self.preflight = try_worst(
                    self.trainer, self.rehearse, optimizer=self.trainer.optimizer, seconds=seconds
                )

    def let_go(self) -> None:
        """An attempt to train has failed: hold nothing of it; the next one is followed when it begins."""
        self._optimizer.remove()
        self._window.clear()

    def rehearse(self, place: str, batch: Any) -> int:
        """Compute a batch as a step of ``place`` (``"training"`` or ``"evaluation"``) would, until it fits.

        Gives the samples of a micro-batch that does.
        Only the limit stays: weights, gradients, random numbers and statistics are left as they are. Gradients must not
        be there already.
        """
        model = self._ranks.inner(self.trainer.model_wrapped)
        with cpu_generators_kept():
            if place == "training":
                self._rehearse_training(model, batch)
            else:
                model.eval()
                self._prediction_step(model, batch, prediction_loss_only=False)
                model.train()
        return self.budgets[place].size(extent(batch), batch_size(batch))

    def _rehearse_training(self, model: Any, batch: Any) -> None:
        call, skipped = self._window.begin(batch), self._left_out.count

        def again() -> None:
            model.zero_grad(set_to_none=True)
            self._step(model, [call], (), {})

        try:
            self._attempts.run(
                "pre-flight", self.budgets["training"], again, again, lambda piece: self._left_out.take(call, piece)
            )
        finally:
            self._window.rewind()
            self._window.clear()
            self._left_out.count = skipped
            model.zero_grad(set_to_none=True)

    @property
    def rule(self) -> str | None:
        """What a micro-batch's loss is weighted by: ``mean``, ``token_mean``, ``sum``; None before the first batch."""
        return self._losses.rule

    @property
    def skipped(self) -> int:
        """Clips that were left out, or cut by ``too_long``, each time that they came."""
        return self._left_out.count

    def _training_step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        call, inner = self._window.begin(inputs), self._ranks.inner(model)
        if cannot_retry(self.trainer):
            self._losses.settle(model, inputs, _items(args, kwargs), self._window, shared=True)
            return self._step(model, [call], args, kwargs)
        with cpu_generators_kept(), self._ranks.together():
            self._losses.settle(inner, inputs, _items(args, kwargs), self._window)
            self._left_out.before(call)

            def again() -> None:
                inner.zero_grad(set_to_none=True)
                self._window.rewind()
                self._step(inner, self._window.calls, args, kwargs)

            self._attempts.run(
                "training",
                self.budgets["training"],
                lambda: self._step(inner, [call], args, kwargs),
                again,
                lambda piece: self._left_out.take(call, piece),
            )
        return self._finish(model, call) if self._window.complete else self._window.tell(call)

    def _step(self, model: Any, calls: list[Call], args: Any, kwargs: Any) -> Any:
        """Forward and backward of collated batches, in micro-batches; the weighted loss of the last."""
        for call in calls:
            seed_cpu(call.seed)
            call.loss = torch.zeros((), device=self.trainer.args.device)
            for part, piece in self._parts(model, call, _items(args, kwargs)):
                self._attempts.running = piece
                call.loss = call.loss + self._losses.step(
                    self._train_step, self._window.totals, model, part, args, kwargs
                )
        return calls[-1].loss

    def _parts(self, model: Any, call: Call, items: Any) -> Iterator[tuple[Any, Piece]]:
        budget = self.budgets["training"]
        if cannot_retry(self.trainer):
            budget = Budget()
        if call.inputs is not None:
            if self._split is None and is_cut(call.inputs, budget) and self._losses.trims(model, call.inputs, items):
                yield from by_length(call.inputs, budget, self._ranks.inner(model))
            else:
                yield from evenly(call.inputs, budget, self._split)
        for part in call.replacements:
            yield like(part, dict(part)), Piece(batch_size(part), extent(part), of_replacement=True)

    def _finish(self, model: Any, call: Call) -> Any:
        """The window is complete: the gradients of all processes together, scaled up for clips that were left out."""
        inner = self._ranks.inner(model)
        gone = self._ranks.average(inner, self._window.left_out)
        self._ranks.share_buffers(model)
        factor = self._window.factor(self._losses.known_rule(), gone)
        if factor != 1.0:
            for p in inner.parameters():
                if p.grad is not None:
                    p.grad.mul_(factor)
        self.budgets["training"].step_done()
        return self._window.tell(call, factor)

    def _prediction_step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        budget = self.budgets["evaluation"]
        model = self._ranks.inner(model)

        def predict(part: Any) -> Any:
            with self._ranks.apart():
                return self._predict(model, part, *args, **kwargs)

        def attempt() -> Any:
            parts, pieces = zip(*evenly(inputs, budget, self._split), strict=True)
            self._attempts.running = pieces[0]
            if len(parts) == 1:
                return predict(parts[0])
            return predict_in_parts(self.trainer, predict, parts, evaluation_rule(self.trainer, self.rule))

        def again() -> Any:
            move_predictions_off(self.trainer)
            return attempt()

        if cannot_retry(self.trainer):
            return predict(inputs)
        return self._attempts.run("evaluation", budget, attempt, again)

    def _once_more(self, place: str, text: str, before: int = 0, after: int = 0) -> None:
        """Keep and say that something was done again."""
        self._attempts.note(place, before, after, text)

    def __repr__(self) -> str:
        weights = f"weights by {self.rule}; " if self.rule else ""
        fitted = f"did not fit {plural(len(self.events), 'time')}" if self.events else "everything has fitted so far"
        head = f"Guard of {type(self.trainer).__name__}: {weights}{fitted}"
        skipped = [f"  {self.skipped} clips were too long and left out or replaced"] if self.skipped else []
        return "\n".join(
            [head, *(f"  {event}" for event in self.events), *skipped, *(f"  note: {n}" for n in self.notes)]
        )


def _items(args: Any, kwargs: Any) -> Any:
    """What the Trainer gives as ``num_items_in_batch``."""
    return args[0] if args else kwargs.get("num_items_in_batch")


def guard_of(trainer: Any) -> Guard | None:
    """The guard that a Trainer has, if it has one."""
    return getattr(trainer, KEY, None)


def attach(trainer: Any, **options: Any) -> Guard:
    """The guard of ``trainer``, made if there is none; one that is there takes no other options."""
    existing = guard_of(trainer)
    if existing is None:
        return Guard(trainer, **options).attach()
    if options:
        raise InvalidArgumentError("the trainer is guarded already", "call detach() of its guard to change options")
    return existing
