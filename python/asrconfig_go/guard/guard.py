"""``Guard``: recovers the training of one Trainer from out-of-memory errors.

It connects the parts: the ``Engine`` recovers training steps, and ``Evaluation`` the batches of an evaluation. Files
are written only after errors, into ``output_dir``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from .._core.batches import batch_size, extent
from .._core.checks import check_keywords
from .._core.out_of_memory import add_note
from .._core.output import SHOWN, first_of, listed
from .._core.random_state import cpu_generators_kept
from .._core.render import plural
from .._core.training_session import cannot_retry, session_of
from ..errors import InvalidArgumentError
from .bad_clips import BadClips, Guarded
from .engine import Engine
from .evaluation import Evaluation, saved
from .guard_options import GuardOptions, GuardSettings, caveats, check_trainer, check_windows
from .loading import ClipRows, Loading
from .loop import Batch, Call
from .loss_rule import LossRule
from .micro_batches import Attempts, Budget, MemoryBudget
from .optimizer_step import OptimizerSteps
from .process_group import ProcessGroup
from .trainer_loop import TrainerLoop, labels_name
from .training_report import write_state

if TYPE_CHECKING:
    import torch
    from transformers import Trainer
    from typing_extensions import Unpack

    from ..predict.worst_batch import PreflightReport
    from .oom_snapshots import OomSnapshots


class Guard(Guarded):
    """Recovers the training and evaluation steps of a Trainer from out-of-memory errors, without changing the result.

    While nothing fails it does nothing: it records random states and references to the batches of the accumulation
    window, and calls none of the user's code. When a training step runs out of GPU memory, it frees what that holds,
    clears the window's gradients, restores the random numbers and all else that can be restored, and computes the
    window again in micro-batches of half the size. Half of what failed stays the limit, in clips × padded length.
    Steps, clips, their order, the schedule, checkpoints and logged losses are those of a run in which nothing happened;
    gradients are, up to rounding, where nothing random is drawn. What could not be restored is named in the event.

    Where the rule is of the table or given, micro-batches that the Trainer accumulates are weighted, too: 16 × 1, 8 × 2
    and 1 × 16 then follow the same gradient, which the Trainer alone multiplies for most speech models. With several
    processes (DDP) each computes its window on its own, and then averages. With DeepSpeed, FSDP and several GPUs in one
    process, an out-of-memory error is explained and raised.

    Args:
        trainer: The ``transformers.Trainer``.
        max_halvings: The largest number of retries of each step; None for 3, or down to one clip where ``too_long`` is
            not ``"raise"``.
        micro_batch: The most clips of a micro-batch, from the first step on. It requires a known ``rule``. None for no
            limit.
        memory: A ``MemoryModel``, by whose predictions batches are split from the first step on, in the way that costs
            least, where the rule is known. None splits no batch by prediction.
        memory_limit_bytes: What the allocator may reserve, for ``memory``; None for the limit of its GPU.
        overhead_s: What a micro-batch costs besides its padded length, in seconds of audio; None for 4 with ``memory``.
            Without ``memory`` batches are split wherever that saves more padding, and None splits none for it.
        host_s: What a micro-batch costs at least, likewise: that long the CPU launches its kernels.
        rule: What the loss of a batch divides by, where it is none of the table in docs/guard.md: ``"mean"`` (clips),
            ``"token_mean"``, ``"shifted_token_mean"``, ``"sum"``, or a function from a batch to a number. Without one,
            the loss is measured once memory has run out.
        split: For batches of an unknown kind, a function from inputs and a size to a list of inputs. None splits the
            rows of each entry.
        too_long: What happens to a clip that does not fit alone: ``"raise"``, ``"skip"``, or a function that gets it as
            a batch of one and returns a list of shorter batches.
        preflight: Whether the optimizer's states and batches of the longest clips (by the dataset's column of lengths,
            else the first clips) are tried before the first step. A number is the longest clip's seconds, to which
            these batches are repeated or truncated.
        split_batch_statistics: Whether batches may be split whose clips the model sees together (batch normalisation),
            by the statistics of smaller micro-batches.
        oom_snapshot: What is written to ``output_dir`` when GPU memory runs out, for pytorch.org/memory_viz: the
            allocator's blocks (``"blocks"``), with them the newest 50 000 allocations and frees (``"history"``, for
            which PyTorch records each with its stack), or nothing (``"off"``).
        bad_clips: What happens to clips on which the model raises an error or whose loss or gradient is not finite,
            once they are named and their batch is saved: ``"report"`` continues as the Trainer does, ``"raise"`` raises
            ``BadClipError`` before weights change, ``"skip"`` leaves them out of the step. See ``bad_batches``.

    Attributes:
        trainer: The Trainer.
        budgets: The limits of micro-batches, in ``"training"`` and in ``"evaluation"``.
        preflight: What was tried before the first step; None where nothing was.

    Raises:
        InvalidArgumentError: An option is unknown or out of range, it requires a known loss and that of the Trainer is
            unknown, or this training cannot be guarded.
    """

    def __init__(self, trainer: Trainer, **options: Unpack[GuardSettings]) -> None:
        check_keywords(options, GuardSettings.__annotations__, "Guard")
        self.trainer, self._options = trainer, GuardOptions(**options)
        check_trainer(trainer)
        chosen = self._options
        limits = chosen.micro_batch, chosen.overhead_s, chosen.host_s
        training = Budget(*limits)
        if chosen.memory is not None:
            training = MemoryBudget(chosen.memory, chosen.memory_limit_bytes, *limits)
        self._ranks = ProcessGroup(trainer)
        rule = LossRule(labels_name(trainer), chosen.rule)
        loop = self._loop = TrainerLoop(trainer, self._ranks, rule)
        for text in caveats(trainer):
            loop.say(text, of_all=True)
        attempts = Attempts(
            chosen.halvings, lambda: loop.step_number, lambda error: self._loading.ran_short(error), self._snapshot,
            self._save_after_lost_gpu, None if self._ranks.alone else loop.rank,
        )  # fmt: skip
        self._loading = Loading(trainer, attempts.note)
        self._rows = ClipRows(trainer, lambda: self._loading.delivered)
        engine = Engine(loop, rule, training, attempts, chosen, processes=self._ranks.size)
        super().__init__(BadClips(engine, chosen.bad_clips, self._rows))
        self._window = engine.window
        self._evaluation = Evaluation(trainer, engine, self._ranks, self._bad)
        self._optimizer = OptimizerSteps(attempts)
        self._snapshots: OomSnapshots | None = None
        self._undo: list[Callable[[], None]] = []
        self.budgets: dict[str, Budget] = {"training": training, "evaluation": self._evaluation.budget}
        self.preflight: PreflightReport | None = None
        self._look_up_rule()

    def attach(self) -> Guard:
        """Replace the Trainer's methods that the guard needs, until ``detach``; a second call does nothing."""
        if not self._undo:
            from ..audio.collators import make_readable

            trainer = self.trainer
            make_readable(trainer)  # stays: nothing here could read its datasets as they were
            self._wrapped: dict[str, Callable[..., Any]] = {
                "prediction_step": self._evaluation.prediction_step,
                "training_step": self._training_step,
                "get_batch_samples": partial(self._fetch, trainer.get_batch_samples),
                "evaluation_loop": self._evaluation.evaluation_loop,
                "_save_checkpoint": partial(saved, trainer, self._engine.attempts, trainer._save_checkpoint),
            }
            self._undo = [
                session_of(trainer).add("guard", self, {**self._wrapped, **self._followed_events()}),
                self._evaluation.remove, self._rows.remove, self.release,
            ]  # fmt: skip
        return self

    def on_detach(self, undo: Callable[[], None]) -> None:
        """Register a function that is called when the guard is detached.

        Args:
            undo: A function without arguments. The last one that was registered is called first, before the guard
                leaves the Trainer.
        """
        self._undo.append(undo)

    def detach(self) -> None:
        """Restore the Trainer's methods.

        Raises:
            InvalidArgumentError: Something else has wrapped its methods since; nothing is changed then.
        """
        own = self._wrapped.items() if self._undo else ()
        over = [name for name, function in own if self.trainer.__dict__.get(name) is not function]
        if over:
            raise InvalidArgumentError(f"something has wrapped {', '.join(over)} after the guard", "undo that first")
        for undo in reversed(self._undo):
            undo()
        self._undo = []

    def release(self) -> None:
        """Release the memory that a failed training holds; the guard stays attached for the next one."""
        self._optimizer.remove()
        self._bad.remove()
        self._bad.norms.remove()
        self._engine.begin()
        if self._snapshots is not None:
            self._snapshots.end()

    def _followed_events(self) -> dict[str, Callable[..., Any]]:
        """Methods to put in place of the callback handler's, by name: each calls all callbacks, and then the guard."""
        handler, begins, ends = self.trainer.callback_handler, self._training_begins, self._training_ends
        acts = {"on_train_begin": begins, "on_epoch_begin": self._epoch_begins, "on_train_end": ends}
        followed = {name: partial(_followed, getattr(handler, name), act) for name, act in acts.items()}
        return {f"callback_handler.{name}": function for name, function in followed.items()}

    def _training_begins(self) -> None:
        """Called when a training begins, after the Trainer has made its optimizer and wrapped its model.

        Raises ``InvalidArgumentError`` where an option requires a known loss, and errors of the pre-flight check.
        """
        if self._options.oom_snapshot != "off" and self.trainer.args.device.type == "cuda":
            from .oom_snapshots import OomSnapshots

            self._snapshots = self._snapshots or OomSnapshots(self.trainer, self._options.oom_snapshot, self._predicted)
            self._snapshots.begin()
        self._optimizer.follow(self.trainer.optimizer, self.trainer)
        self._bad.norms.follow(self.trainer)
        self._engine.begin()
        self._bad.begin()
        self._evaluation.begin()
        self._loading.training_begins()
        self._look_up_rule()
        self._loop.say(check_windows(self.trainer, self._ranks.size), of_all=True)
        if self._options.preflight and not self._engine.splitting.is_shared:
            from ..predict.worst_batch import preflight

            longest = self._options.preflight
            seconds = None if longest is True else float(longest)
            with self._ranks.joined():
                self.preflight = preflight(self.trainer, self._rehearse, seconds)

    def _look_up_rule(self) -> None:
        """Look up the loss in the table. Where it is unknown, log the consequences, or raise if an option needs it."""
        self._engine.splitting.is_shared = cannot_retry(self.trainer)
        self._loop.look_up_rule(self._options.micro_batch, self.budgets["training"].is_limited)

    def _epoch_begins(self) -> None:
        self._bad.step_ended()
        self._loading.epoch_begins()
        self._rows.epoch_begins()
        self._engine.rule.ask_again()

    def _training_ends(self) -> None:
        self._bad.step_ended()
        self._window.begin(())

    def _fetch(self, original: Callable[..., Any], batches: Iterator[Batch], count: int, *args: object) -> Any:
        """Fetch batches with retries, and begin their accumulation window."""
        if self._bad.norms.newest is not None:
            self._bad.step_ended()
        fetched = self._loading.fetch(original, self._ranks.fetched(batches, count), count, *args)
        self._window.begin(fetched[0])
        if not self._ranks.alone and self._engine.rule.is_certain:
            self._loop.items = fetched[1]
            self._window.total = self._ranks.summed(self._engine.count(fetched[0]))
        return fetched

    def _training_step(self, model: torch.nn.Module, inputs: Batch, *args: object, **kwargs: object) -> Any:
        """Compute one batch with retries; after the window's last one, combine and scale the gradients."""
        alone, window, is_shared = self._ranks.alone, self._window, self._engine.splitting.is_shared
        if not window.planned:  # a user has called it, outside of the Trainer's loop
            return self._loop.train_step(model, inputs, *args, **kwargs)
        self._loop.items = args[0] if args else kwargs.get("num_items_in_batch")
        inner = model if alone or is_shared else self._ranks.inner(model)
        call = window.add(inputs, (inner, args, kwargs))
        try:
            if is_shared:  # it cannot be retried, and is weighted as it would be
                return self._engine.run_once(call)
            self._bad.compute(call)
        except Exception as error:
            if not is_shared:
                self._ranks.failed(error)
            elif path := self._snapshot("training", error):
                add_note(error, f"memory snapshot in {path}")
            raise
        call.reported = call.loss
        if len(window.calls) < window.planned:
            return call.loss
        if alone and window.left_out is None and not self._engine.budget.has_failed:
            return call.loss
        return self._finish(model, inner, call)

    def _finish(self, model: torch.nn.Module, inner: torch.nn.Module, call: Call) -> Any:
        """Average the gradients over ranks, scale them for left-out clips, and return the loss to report."""
        left_out = self._window.left_out or 0
        if not self._ranks.alone:
            left_out = self._ranks.average(list(inner.parameters()), left_out)
            self._ranks.share_buffers(model)
        factor = self._engine.finish(left_out)
        if factor != 1.0:  # the Trainer adds up the losses, and got those of earlier batches without the factor
            calls = self._window.calls
            call.reported = factor * sum(c.loss for c in calls) - sum(c.reported for c in calls[:-1])
        return call.reported

    def _rehearse(self, place: str, batch: Batch) -> int:
        """Compute a batch in ever smaller micro-batches, for the pre-flight check; returns the clips of one that fits.

        Only the budget is changed: weights, gradients, random numbers and statistics are left as they were. No
        gradients may exist yet.
        """
        model = self._ranks.inner(self.trainer.model_wrapped)
        with cpu_generators_kept():
            if place == "training":
                before = self._engine.left_out.count
                self._engine.rehearse(batch, (model, (), {}))
                self._engine.left_out.count = before
            else:
                model.eval()
                self._evaluation.prediction_step(model, batch, prediction_loss_only=False)
                model.train()
        return self.budgets[place].size(extent(batch), batch_size(batch))

    def _snapshot(self, place: str, error: BaseException) -> str:
        """Write a memory snapshot of the GPU; returns the file's path, "" where snapshots are off."""
        return self._snapshots.take(place, error) if self._snapshots else ""

    def _predicted(self, place: str) -> tuple[float, dict[str, Any]] | None:
        """The predicted memory of the micro-batch that was computed last: see ``Budget.prediction``."""
        piece = self._engine.attempts.piece()
        if piece is None or place == "saving":
            return None
        kind = "train"
        if place == "evaluation":
            kind = "generate" if getattr(self.trainer.args, "predict_with_generate", False) else "evaluate"
        return self.budgets["training"].prediction(piece, kind)

    def _save_after_lost_gpu(self, error: Exception) -> str:
        """Save what can be saved after ``error`` has destroyed the CUDA context; returns a sentence that says where."""
        newest, position = self._window.calls[-1:], self._window.loader_position
        rows = self._rows.of(position(newest[0]), None, batch_size(newest[0].inputs)) if newest else None
        where = f"its batch holds the rows {listed(rows)} of the dataset; " if rows else ""
        return where + write_state(self.trainer, self._engine.attempts.events, error)

    @property
    def knows_rule(self) -> bool:
        """Whether the rule is of the table or given, so that batches may be split before memory runs out."""
        return self._engine.rule.is_certain

    @property
    def unfit(self) -> str:
        """Why batches of this training cannot be split, once that was measured; ``""`` before, and where they can."""
        return self._engine.rule.unfit

    @property
    def skipped(self) -> int:
        """The number of clips that were left out or replaced by ``too_long``, counted each time that they came."""
        return self._engine.left_out.count

    @property
    def bad_clips(self) -> int:
        """The number of clips that were left out as bad (see ``bad_batches``), counted each time that they came."""
        return self._bad.count

    def __repr__(self) -> str:
        rule = f"the loss divides by {self.rule}; " if self.rule else ""
        times = plural(len(self.events), "time")
        fitted = f"did not fit {times}" if self.events else "nothing ran out of memory so far"
        lines = [f"Guard of {self._engine.loop.name}: {rule}{fitted}", *(f"  {line}" for line in first_of(self.events))]
        lines += [f"  {self.skipped} clips were too long and left out or replaced"] * bool(self.skipped)
        lines += [f"  {self.bad_clips} clips were bad and left out"] * bool(self.bad_clips)
        lines += [f"  {line}" for line in first_of(self.bad_batches, SHOWN)]
        return "\n".join([*lines, *(f"  note: {text}" for text in self.notes)])


def _followed(event: Callable[..., Any], act: Callable[[], None], *args: object, **kwargs: object) -> Any:
    control = event(*args, **kwargs)
    act()
    return control
