"""``Guard``: recovers the training of one Trainer from out-of-memory errors."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypedDict

import torch

from .._base.checks import checked
from .._base.choices import BadClipPolicy, OomSnapshot, TooLong, WeightRule
from .._base.errors import InfeasiblePlanError, InvalidArgumentError
from .._base.out_of_memory import classify, note as add_note
from .._base.override import GUARD_KEY, override
from .._base.parallel_training import cannot_retry
from .._base.random_state import cpu_generators_kept, cpu_state, seed_cpu, seed_of, set_cpu_state
from ..batching.batch_lengths import extent
from ..batching.collated_batch import batch_size, like
from ..batching.memory_limits import OVERHEAD_S
from ..batching.trainer_batches import shared_evenly
from ..loading.stored_audio import make_readable
from ..memory.preflight import PreflightReport, preflight as try_worst
from ..memory.probe import changed_tensors, tensor_sums
from ..view.units import plural
from .accumulation_window import Call, Window
from .attempts import STATISTICS_HINT, Attempts, Piece
from .bad_clip_record import BadBatch
from .bad_clips import BadClips
from .clip_rows import ClipRows
from .evaluation_loop import evaluating, move_predictions_off, predictions_back, saving
from .guard_callback import GuardCallback
from .guard_checks import caveats, check_options, check_trainer, check_windows
from .held_memory import Predicted
from .loader_retry import Loading
from .loss_rule import LossRule
from .measured_losses import items_of
from .memory_budget import MemoryBudget
from .micro_batch_budget import Budget
from .micro_batches import by_length, evenly, is_split
from .model_state import Saved
from .oom_snapshots import OomSnapshots
from .optimizer_step import OptimizerSteps
from .oversized_clips import OversizedClips
from .prediction_step import EvaluationRule, predict_in_parts
from .process_group import ProcessGroup
from .step_times import follow_steps
from .training_report import GuardEvent
from .weighted_losses import WeightedLosses

if TYPE_CHECKING:
    from typing_extensions import Unpack

logger: logging.Logger = logging.getLogger("asrconfig_go")


class GuardSettings(TypedDict, total=False):
    """What ``Guard`` takes by keyword."""

    max_halvings: int | None
    micro_batch: int | None
    memory: Any
    memory_limit_bytes: int | None
    overhead_s: float | None
    rule: WeightRule | None
    split: Callable[[Any, int], list[Any]] | None
    too_long: TooLong | Callable[[Any], list[Any]]
    preflight: bool | float
    split_batch_statistics: bool
    oom_snapshot: OomSnapshot
    bad_clips: BadClipPolicy


class Guard:
    """Keeps a Trainer's optimizer steps what they are, however small the micro-batches must be.

    - When a training step runs out of GPU memory, what it holds is freed, gradients are cleared, the random numbers put
      back, and the whole accumulation window is computed again in micro-batches of half the size. Half of what failed
      stays the limit, in samples × padded length: shorter clips form larger micro-batches. Steps, samples, their
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
    allocator may reserve): batches are then split from the start by the predicted memory of their lengths, in the way
    that costs least: a micro-batch of n clips, the longest of s seconds, is counted as n · s + ``overhead_s`` (4 by
    default). Without ``memory``, ``overhead_s`` splits batches wherever that saves more padding. ``rule`` and
    ``split`` are for losses and batches of an unknown kind. ``too_long`` is what happens to a clip that does not fit
    alone: ``"raise"``, ``"skip"``, or a function that gets it as a batch of one and gives a list of shorter batches.
    With ``preflight`` the optimizer's states and the worst batches are tried before the first step; a number says how
    many seconds the longest clip lasts. ``split_batch_statistics`` allows to split batches whose samples the model sees
    together (batch normalization), by the statistics of smaller micro-batches; otherwise they are not split.
    ``oom_snapshot`` is what is written to ``output_dir`` when GPU memory runs out, for pytorch.org/memory_viz: the
    allocator's blocks (``"blocks"``), with them the newest 50 000 allocations and frees (``"history"``, for which
    PyTorch records each with its stack), or nothing (``"off"``); once for each place, three files at most.
    ``bad_clips`` is what happens to clips whose loss or gradient is not finite, once they are named and their batch is
    saved: ``"report"`` goes on as the Trainer does, ``"raise"`` raises ``BadClipError`` before weights change,
    ``"skip"`` leaves them out of the step. See ``bad_batches``.

    While nothing fails, the training is that of the bare Trainer, random numbers and the order of samples included, up
    to the weights of micro-batches. What cannot be kept exact is logged before the first step, and in ``notes``: a
    training whose losses cannot be weighted is left alone (``unfit`` has the reason).
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
        rule: WeightRule | None = None,
        split: Callable[[Any, int], list[Any]] | None = None,
        too_long: TooLong | Callable[[Any], list[Any]] = "raise",
        preflight: bool | float = False,
        split_batch_statistics: bool = False,
        oom_snapshot: OomSnapshot = "blocks",
        bad_clips: BadClipPolicy = "report",
    ) -> None:
        check_options(max_halvings, micro_batch, overhead_s, rule, too_long, preflight)
        checked("oom_snapshot", oom_snapshot, OomSnapshot)
        checked("bad_clips", bad_clips, BadClipPolicy)
        check_trainer(trainer)
        self.trainer = trainer
        training = Budget(micro_batch, overhead_s)
        if memory is not None:
            cost = OVERHEAD_S if overhead_s is None else overhead_s
            training = MemoryBudget(memory, memory_limit_bytes, micro_batch, cost)
        self.budgets: dict[str, Budget] = {"training": training, "evaluation": Budget()}
        self.events: list[GuardEvent] = []
        self.notes: tuple[str, ...] = caveats(trainer)
        """What the guard cannot keep exact in this training; logged once."""
        self._split, self._preflight = split, preflight
        self.preflight: PreflightReport | None = None
        """What was tried before the first step, if it was."""
        ranks = ProcessGroup(trainer)
        self._ranks = ranks
        self._window = Window(trainer, ranks)
        self._rule = LossRule(trainer, rule, ranks, self._window, split)
        self._losses = WeightedLosses(trainer, self._rule, ranks, self._window)
        self._micro_batch, self._cut_statistics = micro_batch, split_batch_statistics
        self._left_out = OversizedClips(
            too_long, self.budgets["training"], self._window, lambda call: self._bad.does_not_fit(call, "left out")
        )
        if max_halvings is None:
            max_halvings = 3 if too_long == "raise" else 20
        self._loading = Loading(trainer, self._once_more)
        self._rows = ClipRows(trainer, self._loading)
        self._bad = BadClips(trainer, bad_clips, self._window, self._rows, split, lambda: training.samples)
        self._snapshots = OomSnapshots(trainer, oom_snapshot, self._predicted)
        self._attempts = Attempts(trainer, max_halvings, self.events, self._loading.ran_short, self._snapshots)
        self._evaluation_rule = EvaluationRule(trainer, rule)
        self._optimizer = OptimizerSteps(trainer, self._repeated, self._snapshots)
        self._shared = cannot_retry(trainer)  # as it was at the newest step
        self._sums: list[Any] = []  # of the weights at a window's begin, where a step is the user's
        self._undo: list[Callable[[], None]] = []

    def attach(self) -> Guard:
        """Take effect, until ``detach``; a second time does nothing."""
        if not self._undo:
            trainer = self.trainer
            make_readable(trainer)  # stays: nothing here could read its datasets as they were
            self._train_step, self._predict = trainer.training_step, trainer.prediction_step
            self._wrapped = {
                "prediction_step": self._prediction_step,
                "training_step": self._training_step,
                "get_batch_samples": self._bad.fetching(
                    self._window.collecting(self._loading.fetching(trainer.get_batch_samples))
                ),
                "evaluation_loop": evaluating(trainer, self._repeated, self._snapshots),
                "_save_checkpoint": saving(trainer, self._repeated, self._snapshots),
            }
            self._undo = [override(trainer, name, function) for name, function in self._wrapped.items()]
            self._undo += [self._losses.remove, self._optimizer.remove, self._listen(), predictions_back(trainer)]
            self._undo += [self._rows.remove, self._bad.remove]
            self._undo += [follow_steps(trainer.callback_handler), self._snapshots.end]
            setattr(trainer, GUARD_KEY, self)
            for note in self.notes:
                logger.warning(note)
        return self

    def learnt(self) -> dict[str, Any]:
        """What it has measured of model and loss in the first steps, for ``learn``."""
        return self._rule.learnt()

    def learn(self, learnt: dict[str, Any]) -> None:
        """Begin with what the guard of another training of the same model has ``learnt``; before the first step."""
        self._rule.learn(learnt)

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
        self.trainer.__dict__.pop(GUARD_KEY, None)

    def _listen(self) -> Callable[[], None]:
        callback = GuardCallback(self._training_begins, self._epoch_begins, self._bad.step_over, self.events)
        self.trainer.add_callback(callback)
        return lambda: self.trainer.remove_callback(callback)

    def _training_begins(self) -> None:
        """The Trainer has made its optimizer and wrapped its model."""
        self._snapshots.begin()
        self._optimizer.follow()
        self._bad.begin()
        self._rule.begin()
        self._tell_limits()
        carried = check_windows(self.trainer, self._ranks.size)
        self._say(carried)
        if self._preflight and not cannot_retry(self.trainer):
            seconds = None if self._preflight is True else float(self._preflight)
            with self._ranks.joined():
                self.preflight = try_worst(
                    self.trainer, self.rehearse, optimizer=self.trainer.optimizer, seconds=seconds
                )

    def _epoch_begins(self) -> None:
        self._loading.epoch_begins()
        self._rows.epoch_begins()
        self._rule.ask_again()

    def let_go(self) -> None:
        """An attempt to train has failed: hold nothing of it; the next one is followed when it begins."""
        self._optimizer.remove()
        self._bad.remove()
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
        if self._ranks.alone:
            self._rule.settle(self._train_step, model, (), {}, matters=False)
            self._tell_limits()
        if self.unfit:
            self._window.clear()
            return

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
        return self._rule.name

    @property
    def skipped(self) -> int:
        """Clips that were left out, or replaced by ``too_long``, each time that they came."""
        return self._left_out.count

    @property
    def bad_clips(self) -> int:
        """Clips that were left out because their loss or gradient was not finite, each time that they came."""
        return self._bad.count

    @property
    def bad_batches(self) -> list[BadBatch]:
        """Batches whose loss or gradient went wrong, or of which a clip does not fit alone, with the clips to blame."""
        return self._bad.batches

    @property
    def unfit(self) -> str:
        """Why this training is left as it is without a guard; "" where it is guarded, and before the first batch."""
        return self._rule.unfit

    @property
    def _whole(self) -> str:
        """Why batches are not split, if they are not."""
        return "" if self._cut_statistics else self._rule.whole

    def _say(self, text: str) -> None:
        if text and text not in self.notes:
            self.notes += (text,)
            logger.warning(text)

    def _training_step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if self.unfit:
            return self._left_alone(model, inputs, args, kwargs)
        call, inner = self._window.begin(inputs), self._ranks.inner(model)
        self._shared = cannot_retry(self.trainer)
        if self._shared:
            self._rule.settle(self._train_step, model, args, kwargs, matters=True, shared=True)
            try:
                return self._step(model, [call], args, kwargs)
            except Exception as error:
                self._save_snapshot(error)
                raise
        with self._ranks:
            split = is_split(*call.size(), self.budgets["training"])
            matters = self._window.planned > 1 or not self._ranks.alone or split
            self._rule.settle(self._train_step, inner, args, kwargs, matters)
            self._tell_limits()
        if self.unfit:
            self._window.clear()
            return self._left_alone(model, inputs, args, kwargs)
        with self._ranks:
            self._left_out.before(call)
            if self._rule.losses.own_step and len(self._window.calls) == 1:
                self._sums = tensor_sums(self.trainer.model.parameters())

            def again() -> None:
                inner.zero_grad(set_to_none=True)
                self._check_unchanged()
                self._window.rewind()
                self._settle_again(inner, args, kwargs)
                self._step(inner, self._window.calls, args, kwargs)

            try:
                self._attempts.run(
                    "training",
                    self.budgets["training"],
                    lambda: self._step(inner, [call], args, kwargs),
                    again,
                    lambda piece: self._left_out.take(call, piece),
                )
            except InfeasiblePlanError as error:
                piece = self._attempts.running
                if piece is not None and piece.samples == 1 and not piece.of_replacement:
                    self._bad.does_not_fit(call, "raised", error)
                raise
            self._bad.look(inner, items_of(args, kwargs), again)
        return self._finish(model, inner, call) if self._window.complete else self._window.tell(call)

    def _settle_again(self, model: Any, args: Any, kwargs: Any) -> None:
        """What a whole batch did not need to know; several processes have measured it with the window's beginning."""
        if self._ranks.alone and self._window.calls[-1].inputs is not None:
            self._rule.settle(self._train_step, model, args, kwargs, matters=True)
        if self.unfit:
            raise InvalidArgumentError(f"a step cannot be computed again: {self.unfit}", "train with smaller batches")

    def _left_alone(self, model: Any, inputs: Any, args: Any, kwargs: Any) -> Any:
        """The Trainer's own step; what it means when memory runs out is added to the error."""
        try:
            return self._train_step(model, inputs, *args, **kwargs)
        except Exception as error:
            found = classify(error)
            if found["class"] in ("gpu_oom", "maybe"):
                add_note(error, f"the guard leaves this training alone: {self.unfit}; {found['advice']}")
                self._save_snapshot(error)
            raise

    def _save_snapshot(self, error: Exception) -> None:
        """Write the memory snapshot of an error that is raised, and say in the error where."""
        saved = self._snapshots.take("training", error)
        if saved:
            add_note(error, f"memory snapshot in {saved}")

    def _predicted(self, place: str) -> Predicted | None:
        """The prediction of the micro-batch that was computed last, in ``place``."""
        piece = self._attempts.running
        if piece is None or place == "saving":
            return None
        kind = "train"
        if place == "evaluation":
            kind = "generate" if getattr(self.trainer.args, "predict_with_generate", False) else "evaluate"
        return self.budgets["training"].prediction(piece.samples, piece.extent, kind)

    def _tell_limits(self) -> None:
        """Log, before the first step, what cannot be kept exact; raise if it was requested explicitly."""
        unfit, whole = self._rule.unfit, self._whole
        if not (unfit or whole):
            return
        if unfit and not shared_evenly(self.trainer):
            raise InvalidArgumentError(
                f"processes with unequal shares of a step would not train as with even ones: {unfit}",
                "share steps evenly: manager.attach(trainer, memory=False) keeps the Trainer's own batches",
            )
        if self._micro_batch is not None:
            raise InvalidArgumentError(
                f"micro_batch = {self._micro_batch} would not train as the whole batch does: {unfit or whole}",
                "detach() the guard, then attach without micro_batch, to the batch that fits"
                + ("" if unfit else f", or {STATISTICS_HINT}"),
            )
        if unfit:
            self._say(f"the guard leaves this training alone, and an out-of-memory error ends it: {unfit}")
        else:
            self._say(f"batches are not split, as that would change the result: {whole}; {STATISTICS_HINT}")

    def _check_unchanged(self) -> None:
        """A batch that its step has changed in place cannot be computed again; copies are handed out from then on."""
        name = type(self.trainer).__name__
        if self._rule.losses.own_step and changed_tensors(self.trainer.model.parameters(), self._sums):
            raise InvalidArgumentError(
                f"training_step of {name} changes weights within the step, and ran out of memory in between",
                "continue from the last checkpoint, without a guard",
            )
        if any(call.changed for call in self._window.calls):
            raise InvalidArgumentError(
                f"{name} has changed a batch in place in a step that is to be computed again",
                "change a copy of it in compute_loss, or continue from the last checkpoint as manager.train does",
            )

    def _step(self, model: Any, calls: list[Call], args: Any, kwargs: Any) -> Any:
        """Forward and backward of collated batches, in micro-batches; the weighted loss of the last."""
        attributes = self._window.attributes
        for call in calls:
            if len(calls) > 1:  # computed again
                call.begin_again(attributes)
            call.loss = self._compute(model, call, args, kwargs)
            attributes.learn(call.attributes)
        return calls[-1].loss

    def _compute(self, model: Any, call: Call, args: Any, kwargs: Any) -> Any:
        """One collated batch. Random numbers and the model's state are left as by its first micro-batch."""
        loss, kept, behind = None, Saved(), None
        whole = 0 if call.inputs is None else call.size()[0]
        for number, (part, piece) in enumerate(self._parts(model, call, items_of(args, kwargs))):
            self._attempts.running = piece
            cut = number > 0 or piece.samples < whole
            if cut and number == 0:
                kept = self._window.state.save()
            if number:
                if not self._cut_statistics:
                    kept.restore()
                self._window.attributes.put(call.attributes)
                behind = behind or cpu_state()
                seed_cpu((seed_of(behind) + number) % 2**31)
            told = self._losses.step(self._train_step, model, part, args, kwargs, cut)
            loss = told if loss is None else loss + told
        if behind is not None:
            set_cpu_state(behind)
        return torch.zeros((), device=self.trainer.args.device) if loss is None else loss

    def _parts(self, model: Any, call: Call, items: Any) -> Iterator[tuple[Any, Piece]]:
        budget, whole = self.budgets["training"], self._whole
        if self._shared or whole:
            budget = Budget()
        if call.inputs is not None:
            # Splitting needs memory, too: what fails before there are parts is of their size.
            samples, each = call.size()
            self._attempts.running = Piece(budget.size(each, samples), each, whole=whole)
            if (
                self._split is None
                and is_split(samples, each, budget)
                and self._rule.losses.padding_is_unseen(model, call.inputs, items)
            ):
                parts = by_length(call.inputs, budget, self._ranks.inner(model))
            else:
                parts = evenly(call.inputs, budget, self._split, (samples, each))
            for part, piece in parts:
                piece.whole = whole
                try:
                    yield self._window.handed(part), piece
                finally:  # also where it did not fit: the next attempt needs the memory of its copy
                    self._window.returned()
        for part in call.replacements:
            yield like(part, dict(part)), Piece(batch_size(part), extent(part), of_replacement=True)

    def _finish(self, model: Any, inner: Any, call: Call) -> Any:
        """The window is complete: the gradients of all processes together, scaled up for clips that were left out."""
        gone = self._ranks.average(inner, self._window.left_out)
        self._ranks.share_buffers(model)
        self._window.watch_changes()
        factor = self._window.factor(self._rule.known(), gone)
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
                return self._predict(model, self._window.fresh(part), *args, **kwargs)

        def attempt() -> Any:
            parts, pieces = zip(*evenly(inputs, budget, self._split), strict=True)
            self._attempts.running = pieces[0]
            if len(parts) == 1:
                return predict(parts[0])
            rule = self._evaluation_rule.of(inputs, predict, self._split, pieces[0].samples)
            return predict_in_parts(self.trainer, predict, parts, rule)

        def again() -> Any:
            move_predictions_off(self.trainer)
            return attempt()

        if cannot_retry(self.trainer) or self.unfit:
            return predict(inputs)
        return self._attempts.run("evaluation", budget, attempt, again)

    def _repeated(self, place: str, text: str, snapshot: str) -> None:
        """Record and log what was done once more as it was."""
        self._attempts.note(place, 0, 0, text, snapshot=snapshot)

    def _once_more(self, place: str, text: str, before: int = 0, after: int = 0) -> None:
        """Record and log a retry."""
        self._attempts.note(place, before, after, text)

    def __repr__(self) -> str:
        weights = f"weights by {self.rule}; " if self.rule else ""
        fitted = (
            f"did not fit {plural(len(self.events), 'time')}" if self.events else "nothing ran out of memory so far"
        )
        head = f"Guard of {type(self.trainer).__name__}: {weights}{fitted}"
        skipped = [f"  {self.skipped} clips were too long and left out or replaced"] if self.skipped else []
        bad = [f"  {self.bad_clips} clips were bad and left out"] if self.bad_clips else []
        bad += [f"  {batch}" for batch in self.bad_batches]
        return "\n".join(
            [head, *(f"  {event}" for event in self.events), *skipped, *bad, *(f"  note: {n}" for n in self.notes)]
        )


def guard_of(trainer: Any) -> Guard | None:
    """The guard that a Trainer has, if it has one.

    >>> from transformers import Trainer, TrainingArguments
    >>> from asrconfig_go.demo.digit_model import small_model
    >>> args = TrainingArguments("out", use_cpu=True, report_to=[], per_device_train_batch_size=8)
    >>> trainer = Trainer(small_model(tokens=12, seed=0), args, train_dataset=[{"input_values": [0.0]}] * 16)
    >>> guard_of(trainer) is None
    True
    """
    return getattr(trainer, GUARD_KEY, None)


def attach(trainer: Any, **options: Unpack[GuardSettings]) -> Guard:
    """The guard of ``trainer``, made if there is none; an existing one accepts no options.

    >>> from transformers import Trainer, TrainingArguments
    >>> from asrconfig_go.demo.digit_model import small_model
    >>> args = TrainingArguments("out", use_cpu=True, report_to=[], per_device_train_batch_size=8)
    >>> trainer = Trainer(small_model(tokens=12, seed=0), args, train_dataset=[{"input_values": [0.0]}] * 16)
    >>> guard = attach(trainer, micro_batch=4)
    >>> guard.detach()
    """
    existing = guard_of(trainer)
    if existing is None:
        return Guard(trainer, **options).attach()
    if options:
        raise InvalidArgumentError("the trainer is guarded already", "call detach() of its guard to change options")
    return existing
