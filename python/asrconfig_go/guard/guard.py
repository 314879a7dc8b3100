"""``Guard``: recovers the training of one Trainer from out-of-memory errors."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypedDict, cast

from .._core.batches import batch_size, extent
from .._core.checks import BadClipPolicy, OomSnapshot, TooLong, checked
from .._core.out_of_memory import note as add_note
from .._core.output import SHOWN, first_of, listed
from .._core.random_state import cpu_generators_kept
from .._core.render import plural
from .._core.training_session import attached, session_of
from .._core.transformers_features import cannot_retry
from ..errors import InfeasiblePlanError, InvalidArgumentError
from ..predict.memory_limits import OVERHEAD_S
from .bad_clips import BadClips
from .clip_findings import ClipRows
from .clip_measurement import GradientNorms
from .engine import Engine
from .evaluated_clips import EvaluatedClips
from .evaluation import Predictions, evaluating, predictions_back, saving
from .guard_checks import caveats, check_options, check_trainer, check_windows
from .loader_retry import Loading
from .loop import Batch, Call, Split
from .loss_rule import GivenRule, LossRule
from .micro_batches import Attempts, Budget
from .optimizer_step import OptimizerSteps
from .oversized_clips import OversizedClips
from .process_group import ProcessGroup
from .trainer_loop import RULE_HINT, TrainerLoop, labels_name
from .training_report import BadBatch, GuardEvent

if TYPE_CHECKING:
    import torch
    from transformers import Trainer
    from typing_extensions import Unpack

    from ..predict.worst_batch import PreflightReport
    from .oom_snapshots import OomSnapshots, Predicted


logger: logging.Logger = logging.getLogger("asrconfig_go")


class GuardSettings(TypedDict, total=False):
    """What ``Guard`` takes by keyword."""

    max_halvings: int | None
    micro_batch: int | None
    memory: Any
    memory_limit_bytes: int | None
    overhead_s: float | None
    rule: GivenRule | None
    split: Split | None
    too_long: TooLong | Callable[[Any], list[Any]]
    preflight: bool | float
    split_batch_statistics: bool
    oom_snapshot: OomSnapshot
    bad_clips: BadClipPolicy


class Guard:
    """Keeps a Trainer's optimizer steps what they are, however small the micro-batches must be.

    While nothing fails it does nothing: it notes random states and references to the batches of the accumulation
    window, and calls none of the user's code. When a training step runs out of GPU memory, it frees what that holds,
    clears the window's gradients, puts the random numbers and all else that can be put back, and computes the window
    again in micro-batches of half the size. Half of what failed stays the limit, in clips × padded length. Steps,
    clips, their order, the schedule, checkpoints and logged losses are those of a run in which nothing happened;
    gradients are, up to rounding, where nothing random is drawn. What could not be put back is named in the event.

    Args:
        trainer: The ``transformers.Trainer``.
        max_halvings: Retries of each step: 3, or down to one clip where clips may be left out.
        micro_batch: The most clips of a micro-batch, from the first step on. It requires a known ``rule``.
        memory: A ``MemoryModel``, by whose predictions batches are split from the first step on, in the way that costs
            least, where the rule is known.
        memory_limit_bytes: What the allocator may reserve, for ``memory``.
        overhead_s: What a micro-batch costs besides its padded length, in seconds of audio, 4 by default. Without
            ``memory`` batches are split wherever that saves more padding.
        rule: What the loss of a batch divides by, where it is none of the table in docs/guard.md: ``"mean"`` (clips),
            ``"token_mean"``, ``"shifted_token_mean"``, ``"sum"``, or a function from a batch to a number. Without one,
            the loss is measured once memory has run out.
        split: For batches of an unknown kind, a function from inputs and a size to a list of inputs.
        too_long: What happens to a clip that does not fit alone: ``"raise"``, ``"skip"``, or a function that gets it as
            a batch of one and returns a list of shorter batches.
        preflight: Whether the optimizer's states and the worst batches are tried before the first step; a number is
            the longest clip's seconds.
        split_batch_statistics: Whether batches may be split whose clips the model sees together (batch normalisation),
            by the statistics of smaller micro-batches.
        oom_snapshot: What is written to ``output_dir`` when GPU memory runs out, for pytorch.org/memory_viz: the
            allocator's blocks (``"blocks"``), with them the newest 50 000 allocations and frees (``"history"``, for
            which PyTorch records each with its stack), or nothing (``"off"``).
        bad_clips: What happens to clips on which the model raises an error or whose loss or gradient is not finite,
            once they are named and their batch is saved: ``"report"`` continues as the Trainer does, ``"raise"`` raises
            ``BadClipError`` before weights change, ``"skip"`` leaves them out of the step. See ``bad_batches``.

    Where the rule is of the table or given, micro-batches that the Trainer accumulates are weighted, too: 16 × 1, 8 × 2
    and 1 × 16 then follow the same gradient, which the Trainer alone multiplies for most speech models. With several
    processes (DDP) each computes its window by itself, and then averages. With DeepSpeed, FSDP and several GPUs in one
    process out of memory is explained and raised.

    Attributes:
        notes: What the guard cannot keep exact in this training; each logged once.
        preflight: What was tried before the first step, if it was.
    """

    def __init__(
        self,
        trainer: Trainer,
        *,
        max_halvings: int | None = None,
        micro_batch: int | None = None,
        memory: Any = None,
        memory_limit_bytes: int | None = None,
        overhead_s: float | None = None,
        rule: GivenRule | None = None,
        split: Split | None = None,
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
            from .memory_budget import MemoryBudget

            cost = OVERHEAD_S if overhead_s is None else overhead_s
            training = MemoryBudget(memory, memory_limit_bytes, micro_batch, cost)
        self.budgets: dict[str, Budget] = {"training": training, "evaluation": Budget()}
        self.preflight: PreflightReport | None = None
        self._preflight, self._micro_batch = preflight, micro_batch
        ranks = self._ranks = ProcessGroup(trainer)
        self._rule = LossRule(labels_name(trainer), rule)
        loop = self._loop = TrainerLoop(trainer, ranks, self._rule)
        loop.notes = caveats(trainer)
        self._oom_snapshot = oom_snapshot
        self._snapshots: OomSnapshots | None = None
        self._loading = Loading(trainer, self._repeated)
        halvings = max_halvings if max_halvings is not None else 3 if too_long == "raise" else 20
        self._attempts = Attempts(
            halvings, lambda: loop.step_number, self._loading.ran_short, self._snapshot, self._lost_gpu
        )
        engine = self._engine = Engine(
            loop, self._rule, training, self._attempts,
            split=split, split_statistics=split_batch_statistics, processes=ranks.size,
        )  # fmt: skip
        self._window = engine.window
        self._rows, self._norms = ClipRows(trainer, lambda: self._loading.delivered), GradientNorms()
        self._bad = bad = BadClips(bad_clips, engine, self._norms, self._rows)
        self._left_out = engine.left_out = OversizedClips(
            too_long, engine.budget, engine.window, engine.rule, lambda call: bad.does_not_fit(call, "left out")
        )
        self._evaluated = EvaluatedClips(trainer, self._bad)
        self._predictions = Predictions(trainer, self._rule, self.budgets["evaluation"], self._attempts, ranks, split)
        self._optimizer = OptimizerSteps(self._repeated, self._snapshot)
        self._undo: list[Callable[[], None]] = []
        self._shared = cannot_retry(trainer)
        self._settle()

    def attach(self) -> Guard:
        """Take effect, until ``detach``; a second time does nothing."""
        if not self._undo:
            from ..audio.stored_audio import make_readable

            trainer = self.trainer
            make_readable(trainer)  # stays: nothing here could read its datasets as they were
            self._wrapped = {
                "prediction_step": self._prediction_step,
                "training_step": self._training_step,
                "get_batch_samples": self._fetching(trainer.get_batch_samples),
                "evaluation_loop": evaluating(
                    trainer, self._evaluated.around(trainer.evaluation_loop), self._repeated, self._snapshot
                ),
                "_save_checkpoint": saving(trainer, self._repeated, self._snapshot),
            }
            self._undo = [session_of(trainer).add("guard", self, {**self._wrapped, **self._followed_events()})]
            self._undo += [self._optimizer.remove, predictions_back(trainer)]
            self._undo += [self._rows.remove, self._bad.remove, self._norms.remove]
            self._undo.append(lambda: self._snapshots.end() if self._snapshots else None)
            for text in self.notes:
                logger.warning(text)
        return self

    def on_detach(self, undo: Callable[[], None]) -> None:
        """Call ``undo`` when the guard is detached, before all others."""
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
        self._engine.begin()

    def let_go(self) -> None:
        """Release what a failed attempt to train holds; the next one is followed when it begins."""
        self._optimizer.remove()
        self._bad.remove()
        self._norms.remove()
        self._engine.begin()

    # What the Trainer does.

    def _followed_events(self) -> dict[str, Callable[..., Any]]:
        """The handler's methods that call a training's callbacks, each with what the guard does after them all."""
        handler = self.trainer.callback_handler

        def followed(event: Callable[..., Any], act: Callable[[], None]) -> Callable[..., Any]:
            def event_and_act(*args: object, **kwargs: object) -> Any:
                control = event(*args, **kwargs)
                act()
                return control

            return event_and_act

        return {
            "callback_handler.on_train_begin": followed(handler.on_train_begin, self._training_begins),
            "callback_handler.on_epoch_begin": followed(handler.on_epoch_begin, self._epoch_begins),
            "callback_handler.on_train_end": followed(handler.on_train_end, self._training_ends),
        }

    def _training_begins(self) -> None:
        """The Trainer has made its optimizer and wrapped its model."""
        if self._oom_snapshot != "off" and self.trainer.args.device.type == "cuda":
            from .oom_snapshots import OomSnapshots

            self._snapshots = self._snapshots or OomSnapshots(self.trainer, self._oom_snapshot, self._predicted)
            self._snapshots.begin()
        self._optimizer.follow(self.trainer.optimizer, self.trainer)
        self._norms.follow(self.trainer)
        self._engine.begin()
        self._bad.begin()
        self._evaluated.begin()
        self._shared = cannot_retry(self.trainer)
        self._settle()
        self._loop.say(check_windows(self.trainer, self._ranks.size))
        if self._preflight and not self._shared:
            from ..predict.worst_batch import preflight

            seconds = None if self._preflight is True else float(self._preflight)
            with self._ranks.joined():
                self.preflight = preflight(
                    self.trainer, self.rehearse, optimizer=self.trainer.optimizer, seconds=seconds
                )

    def _settle(self) -> None:
        """Look up the loss; log what follows where it is unknown, or raise if an option requires it."""
        self._rule.begin(self._loop.table_loss())
        self._rule.has_hooks, self._engine.splitting.is_shared = self._loop.has_hooks(), bool(self._shared)
        if self._rule.is_certain:
            return
        reason = self._loop.unknown_reason()
        if not getattr(attached(self.trainer, "batches"), "even", True):
            raise InvalidArgumentError(
                f"processes with unequal shares of a step would not train as with even ones: {reason}",
                "share steps evenly: manager.attach(trainer, memory=False) keeps the Trainer's own batches",
            )
        if not self.budgets["training"].is_limited:
            return
        if self._micro_batch is not None:
            raise InvalidArgumentError(
                f"micro_batch = {self._micro_batch} requires to know what the loss divides by: {reason}", RULE_HINT
            )
        self._loop.say(f"batches are not split before memory runs out: {reason}; {RULE_HINT}")

    def _epoch_begins(self) -> None:
        self._bad.step_over()
        self._loading.epoch_begins()
        self._rows.epoch_begins()
        self._rule.ask_again()

    def _training_ends(self) -> None:
        self._bad.step_over()
        self._window.begin(())

    def _fetching(self, original: Callable[..., Any]) -> Callable[..., Any]:
        alone, ranks = self._ranks.alone, self._ranks

        def get_batch_samples(batches: Iterator[Batch], count: int, *args: object) -> Any:
            if self._norms.newest is not None:
                self._bad.step_over()
            fetched = self._loading.fetch(original, batches if alone else ranks.fetched(batches, count), count, *args)
            self._window.begin(fetched[0])
            if not alone and self._rule.is_certain:
                self._loop.items = fetched[1]
                self._window.total = ranks.summed(self._engine.count(fetched[0]))
            return fetched

        return get_batch_samples

    def _training_step(self, model: torch.nn.Module, inputs: Batch, *args: object, **kwargs: object) -> Any:
        alone, window = self._ranks.alone, self._window
        if not window.planned:  # a step that somebody makes by hand
            return self._loop.train_step(model, inputs, *args, **kwargs)
        self._loop.items = args[0] if args else kwargs.get("num_items_in_batch")
        inner = model if alone or self._shared else self._ranks.inner(model)
        call = window.call(inputs, (inner, args, kwargs))
        if self._shared:  # its weight is kept right, and an error is raised
            try:
                return self._engine.once(call)
            except Exception as error:
                if saved := self._snapshot("training", error):
                    add_note(error, f"memory snapshot in {saved}")
                raise
        try:
            self._engine.run(call)
            self._bad.look(call)
        except InfeasiblePlanError as error:
            piece = self._attempts.piece()
            if piece is not None and piece.is_one_clip:
                self._bad.does_not_fit(call, "raised", error)
            self._ranks.failed(error)
            raise
        except Exception as error:
            self._ranks.failed(error)
            raise
        call.reported = call.loss
        if len(window.calls) < window.planned:
            return call.loss
        if alone and window.left_out is None and not self._engine.budget.has_failed:
            return call.loss
        return self._finish(model, inner, call)

    def _finish(self, model: torch.nn.Module, inner: torch.nn.Module, call: Call) -> Any:
        """Combine the gradients of all processes, scaled up for clips that were left out."""
        left_out = self._window.left_out or 0
        if not self._ranks.alone:
            left_out = self._ranks.average(list(inner.parameters()), left_out)
            self._ranks.share_buffers(model)
        factor = self._engine.finish(left_out)
        if factor != 1.0:  # the losses that the Trainer is given are to add up to the right one
            calls = self._window.calls
            call.reported = factor * sum(c.loss for c in calls) - sum(c.reported for c in calls[:-1])
        return call.reported

    def _prediction_step(self, model: torch.nn.Module, inputs: Batch, *args: object, **kwargs: object) -> Any:
        if self._shared:
            return self._predictions.original(model, inputs, *args, **kwargs)
        predicted = self._predictions.step(model, inputs, *args, **kwargs)
        self._evaluated.look(self._ranks.inner(model), inputs, predicted[0])
        return predicted

    def rehearse(self, place: str, batch: Batch) -> int:
        """Compute a batch as a step of ``place`` (``"training"`` or ``"evaluation"``) would, until it fits.

        Returns the clips of a micro-batch that does. Only the limit stays: weights, gradients, random numbers and
        statistics are left as they are. Gradients must not be there already.
        """
        model = self._ranks.inner(self.trainer.model_wrapped)
        with cpu_generators_kept():
            if place == "training":
                self._engine.rehearse(batch, (model, (), {}))
                self._left_out.count = 0
            else:
                model.eval()
                self._prediction_step(model, batch, prediction_loss_only=False)
                model.train()
        return self.budgets[place].size(extent(batch), batch_size(batch))

    # What is known of the training.

    @property
    def events(self) -> list[GuardEvent]:
        """What did not fit, and what was done about it."""
        return self._attempts.events

    @property
    def notes(self) -> tuple[str, ...]:
        """What the guard cannot keep exact in this training; each was logged once."""
        return self._loop.notes

    @property
    def rule(self) -> str | None:
        """What the loss divides by: by the table, as given or as measured; None while it is unknown."""
        return self._rule.name

    @property
    def knows_rule(self) -> bool:
        """Whether the rule is of the table or given, so that batches may be split before memory runs out."""
        return self._rule.is_certain

    @property
    def unfit(self) -> str:
        """Why batches of this training cannot be split, once that was measured; "" before, and where they can."""
        return self._rule.unfit

    @property
    def skipped(self) -> int:
        """Clips that were left out, or replaced by ``too_long``, each time that they came."""
        return self._left_out.count

    @property
    def bad_clips(self) -> int:
        """Clips that were left out because of an error, or as loss or gradient was not finite, each time they came."""
        return self._bad.count

    @property
    def bad_batches(self) -> list[BadBatch]:
        """Batches that went wrong, or of which a clip does not fit alone, with the clips to blame."""
        return self._bad.batches

    def _snapshot(self, place: str, error: BaseException) -> str:
        return self._snapshots.take(place, error) if self._snapshots else ""

    def _predicted(self, place: str) -> Predicted | None:
        """The prediction of the micro-batch that was computed last."""
        piece = self._attempts.piece()
        if piece is None or place == "saving":
            return None
        kind = "train"
        if place == "evaluation":
            kind = "generate" if getattr(self.trainer.args, "predict_with_generate", False) else "evaluate"
        return self.budgets["training"].prediction(piece.samples, piece.extent, kind)

    def _lost_gpu(self, error: Exception) -> str:
        from .guard_checks import keep_what_can_be_kept

        calls = self._window.calls
        rows = self._rows.of(len(calls) - 1, None, batch_size(calls[-1].inputs)) if calls else None
        where = f"its batch holds the rows {listed(rows)} of the dataset; " if rows else ""
        return where + keep_what_can_be_kept(self.trainer, self.events, error)

    def _repeated(self, place: str, text: str, snapshot: str = "", before: int = 0, after: int = 0) -> None:
        self._attempts.note(place, before, after, text, snapshot=snapshot)

    def __repr__(self) -> str:
        rule = f"the loss divides by {self.rule}; " if self.rule else ""
        times = plural(len(self.events), "time")
        fitted = f"did not fit {times}" if self.events else "nothing ran out of memory so far"
        lines = [f"Guard of {self._loop.name}: {rule}{fitted}", *(f"  {line}" for line in first_of(self.events))]
        lines += [f"  {self.skipped} clips were too long and left out or replaced"] * bool(self.skipped)
        lines += [f"  {self.bad_clips} clips were bad and left out"] * bool(self.bad_clips)
        lines += [f"  {line}" for line in first_of(self.bad_batches, SHOWN)]
        return "\n".join([*lines, *(f"  note: {text}" for text in self.notes)])


def guard_of(trainer: Trainer) -> Guard | None:
    """The guard that a Trainer has, if it has one.

    >>> from transformers import Trainer, TrainingArguments
    >>> from asrconfig_go.recipe.model_building import small_model
    >>> args = TrainingArguments("out", use_cpu=True, report_to=[], per_device_train_batch_size=8)
    >>> trainer = Trainer(small_model(tokens=12, seed=0), args, train_dataset=[{"input_values": [0.0]}] * 16)
    >>> guard_of(trainer) is None
    True
    """
    return cast("Guard | None", attached(trainer, "guard"))


def attach(trainer: Trainer, **options: Unpack[GuardSettings]) -> Guard:
    """The guard of ``trainer``, made if there is none; an existing one accepts no options.

    >>> from transformers import Trainer, TrainingArguments
    >>> from asrconfig_go.recipe.model_building import small_model
    >>> args = TrainingArguments("out", use_cpu=True, report_to=[], per_device_train_batch_size=8)
    >>> trainer = Trainer(small_model(tokens=12, seed=0), args, train_dataset=[{"input_values": [0.0]}] * 16)
    >>> guard = attach(trainer, micro_batch=4)
    >>> guard.detach()
    """
    from .._core.checks import check_keywords

    check_keywords(options, GuardSettings.__annotations__, "attach")
    existing = guard_of(trainer)
    if existing is None:
        return Guard(trainer, **options).attach()
    if options:
        raise InvalidArgumentError("the trainer is guarded already", "call detach() of its guard to change options")
    return existing
