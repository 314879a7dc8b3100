"""The methods that a guard puts in place of a Trainer's: training steps, evaluation, checkpoints, fetching of batches.

``Guard`` makes one ``GuardedTrainer``, which connects the parts: the ``Engine`` recovers training steps, and
``Evaluation`` the batches of an evaluation. Besides the methods the Trainer gets hooks, which ``undo`` removes. Files
are written only after errors, into ``output_dir``.
"""

from __future__ import annotations

import dataclasses
import json
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._core.batches import batch_size, extent
from .._core.files import write_whole
from .._core.out_of_memory import add_note
from .._core.output import listed
from .._core.random_state import cpu_generators_kept
from .._core.training_session import attached, cannot_retry
from ..errors import InvalidArgumentError
from .bad_clips import BadClips
from .engine import Engine
from .evaluation import Evaluation, saving
from .guard_options import GuardOptions, caveats, check_trainer, check_windows
from .loading import ClipRows, Loading
from .loop import Batch, Call
from .loss_rule import LossRule
from .micro_batches import Attempts, Budget, MemoryBudget
from .optimizer_step import OptimizerSteps
from .process_group import ProcessGroup
from .trainer_loop import RULE_HINT, TrainerLoop, labels_name
from .training_report import GuardEvent

if TYPE_CHECKING:
    import torch
    from transformers import Trainer

    from ..predict.worst_batch import PreflightReport
    from .oom_snapshots import OomSnapshots

_FAILURE_FILE = "asrconfig-failure.json"


class GuardedTrainer:
    """The steps, evaluations and checkpoints of one Trainer, and the parts that recover them.

    Attributes:
        trainer: The Trainer.
        budgets: The largest micro-batches, in ``"training"`` and in ``"evaluation"``.
        preflight: The report of the pre-flight check; None where none was made.
        ranks: The processes that train together.
        rule: What the loss divides by.
        loop: The Trainer as a ``Loop``, for the engine.
        snapshots: Memory snapshots at out-of-memory errors; None without a GPU.
        loading: Fetches batches, with retries where host memory runs out.
        attempts: The retries, with their events.
        rows: Finds the rows of the dataset that are in a batch.
        engine: Computes the batches of an accumulation window.
        bad: Calls the engine, and looks for bad clips in what it computed.
        window: The engine's window: the batches of one optimizer step.
    """

    def __init__(self, trainer: Trainer, options: GuardOptions) -> None:
        check_trainer(trainer)
        self.trainer, self._options = trainer, options
        limits = options.micro_batch, options.overhead_s, options.host_s
        training = Budget(*limits)
        if options.memory is not None:
            training = MemoryBudget(options.memory, options.memory_limit_bytes, *limits)
        self.preflight: PreflightReport | None = None
        ranks = self.ranks = ProcessGroup(trainer)
        rule = self.rule = LossRule(labels_name(trainer), options.rule)
        loop = self.loop = TrainerLoop(trainer, ranks, rule)
        loop.notes = caveats(trainer)
        self.snapshots: OomSnapshots | None = None
        self.attempts = Attempts(
            options.halvings, lambda: loop.step_number, lambda error: self.loading.ran_short(error), self.snapshot,
            self._save_after_lost_gpu,
        )  # fmt: skip
        self.loading = Loading(trainer, self.attempts.note)
        self.rows = ClipRows(trainer, lambda: self.loading.delivered)
        self.engine = Engine(loop, rule, training, self.attempts, options, processes=ranks.size)
        self.bad = BadClips(self.engine, options.bad_clips, self.rows)
        self.window = self.engine.window
        self._evaluation = Evaluation(trainer, self.engine, ranks, self.bad)
        self.budgets: dict[str, Budget] = {"training": training, "evaluation": self._evaluation.budget}
        self._optimizer = OptimizerSteps(self.attempts)
        self._prepare_rule()

    def methods(self) -> dict[str, Callable[..., Any]]:
        """The methods to put in place of the Trainer's, by name."""
        trainer = self.trainer
        return {
            "prediction_step": self._evaluation.prediction_step,
            "training_step": self._training_step,
            "get_batch_samples": self._fetching_with_retries(trainer.get_batch_samples),
            "evaluation_loop": self._evaluation.evaluation_loop,
            "_save_checkpoint": saving(trainer, self.attempts),
        }

    def undo(self) -> list[Callable[[], None]]:
        """Functions for ``Guard.detach`` that put back what is no method; call it once ``methods`` are in place."""
        return [self._evaluation.remove, self.rows.remove, self.release, self._end_snapshots]

    def _end_snapshots(self) -> None:
        if self.snapshots is not None:
            self.snapshots.end()

    def release(self) -> None:
        """Release weights and hooks after an attempt to train has failed; ``training_begins`` begins the next one."""
        self._optimizer.remove()
        self.bad.remove()
        self.bad.norms.remove()
        self.engine.begin()

    def followed_events(self) -> dict[str, Callable[..., Any]]:
        """Methods to put in place of the callback handler's, by name: each calls all callbacks, and then the guard."""
        handler = self.trainer.callback_handler

        def followed(event: Callable[..., Any], act: Callable[[], None]) -> Callable[..., Any]:
            def event_and_act(*args: object, **kwargs: object) -> Any:
                control = event(*args, **kwargs)
                act()
                return control

            return event_and_act

        return {
            "callback_handler.on_train_begin": followed(handler.on_train_begin, self.training_begins),
            "callback_handler.on_epoch_begin": followed(handler.on_epoch_begin, self._epoch_begins),
            "callback_handler.on_train_end": followed(handler.on_train_end, self._training_ends),
        }

    def training_begins(self) -> None:
        """Called when a training begins, after the Trainer has made its optimizer and wrapped its model.

        Raises ``InvalidArgumentError`` where an option requires a known loss, and errors of the pre-flight check.
        """
        if self._options.oom_snapshot != "off" and self.trainer.args.device.type == "cuda":
            from .oom_snapshots import OomSnapshots

            self.snapshots = self.snapshots or OomSnapshots(self.trainer, self._options.oom_snapshot, self._predicted)
            self.snapshots.begin()
        self._optimizer.follow(self.trainer.optimizer, self.trainer)
        self.bad.norms.follow(self.trainer)
        self.engine.begin()
        self.bad.begin()
        self._evaluation.begin()
        self._prepare_rule()
        self.loop.say(check_windows(self.trainer, self.ranks.size))
        if self._options.preflight and not self.engine.splitting.is_shared:
            self._check_worst_batch()

    def _check_worst_batch(self) -> None:
        from ..predict.worst_batch import preflight

        seconds = None if self._options.preflight is True else float(self._options.preflight)
        with self.ranks.joined():
            self.preflight = preflight(self.trainer, self.rehearse, optimizer=self.trainer.optimizer, seconds=seconds)

    def _prepare_rule(self) -> None:
        """Look up the loss in the table. Where it is unknown, log the consequences, or raise if an option needs it."""
        self.rule.begin(self.loop.table_loss())
        self.rule.has_hooks, self.engine.splitting.is_shared = self.loop.has_hooks(), cannot_retry(self.trainer)
        if self.rule.is_certain:
            return
        reason = self.loop.unknown_reason()
        if not getattr(attached(self.trainer, "batches"), "even", True):
            raise InvalidArgumentError(
                f"processes with unequal shares of a step would not train as with even ones: {reason}",
                "share steps evenly: manager.attach(trainer, memory=False) keeps the Trainer's own batches",
            )
        if self._options.micro_batch is not None:
            raise InvalidArgumentError(
                f"micro_batch = {self._options.micro_batch} requires to know what the loss divides by: {reason}",
                RULE_HINT,
            )
        consequences = ["batches are not split before memory runs out"] * self.budgets["training"].is_limited
        accumulation = self.trainer.args.gradient_accumulation_steps
        if accumulation > 1 and self.trainer.model_accepts_loss_kwargs:  # then the Trainer does not divide the loss
            consequences.append(f"gradients may be up to {accumulation} times too large (transformers issue 47688)")
        if consequences:
            self.loop.say(f"{', and '.join(consequences)}: {reason}; {RULE_HINT}")

    def _epoch_begins(self) -> None:
        self.bad.step_ended()
        self.loading.epoch_begins()
        self.rows.epoch_begins()
        self.rule.ask_again()

    def _training_ends(self) -> None:
        self.bad.step_ended()
        self.window.begin(())

    def _fetching_with_retries(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """A ``get_batch_samples`` that calls ``original`` with retries, and begins an accumulation window."""
        alone, ranks = self.ranks.alone, self.ranks

        def get_batch_samples(batches: Iterator[Batch], count: int, *args: object) -> Any:
            if self.bad.norms.newest is not None:
                self.bad.step_ended()
            fetched = self.loading.fetch(original, batches if alone else ranks.fetched(batches, count), count, *args)
            self.window.begin(fetched[0])
            if not alone and self.rule.is_certain:
                self.loop.items = fetched[1]
                self.window.total = ranks.summed(self.engine.count(fetched[0]))
            return fetched

        return get_batch_samples

    def _training_step(self, model: torch.nn.Module, inputs: Batch, *args: object, **kwargs: object) -> Any:
        """Compute one batch with retries; after the window's last one, combine and scale the gradients."""
        alone, window, is_shared = self.ranks.alone, self.window, self.engine.splitting.is_shared
        if not window.planned:  # a user has called it, outside of the Trainer's loop
            return self.loop.train_step(model, inputs, *args, **kwargs)
        self.loop.items = args[0] if args else kwargs.get("num_items_in_batch")
        inner = model if alone or is_shared else self.ranks.inner(model)
        call = window.add(inputs, (inner, args, kwargs))
        if is_shared:
            return self._run_once(call)
        try:
            self.bad.compute(call)
        except Exception as error:
            self.ranks.failed(error)
            raise
        call.reported = call.loss
        if len(window.calls) < window.planned:
            return call.loss
        if alone and window.left_out is None and not self.engine.budget.has_failed:
            return call.loss
        return self._finish(model, inner, call)

    def _run_once(self, call: Call) -> Any:
        """Compute a batch that cannot be retried, weighted as it would be; after an error save a memory snapshot."""
        try:
            return self.engine.run_once(call)
        except Exception as error:
            if saved := self.snapshot("training", error):
                add_note(error, f"memory snapshot in {saved}")
            raise

    def _finish(self, model: torch.nn.Module, inner: torch.nn.Module, call: Call) -> Any:
        """Average the gradients over ranks, scale them for left-out clips, and return the loss to report."""
        left_out = self.window.left_out or 0
        if not self.ranks.alone:
            left_out = self.ranks.average(list(inner.parameters()), left_out)
            self.ranks.share_buffers(model)
        factor = self.engine.finish(left_out)
        if factor != 1.0:  # the Trainer adds up the losses, and got those of earlier batches without the factor
            calls = self.window.calls
            call.reported = factor * sum(c.loss for c in calls) - sum(c.reported for c in calls[:-1])
        return call.reported

    def rehearse(self, place: str, batch: Batch) -> int:
        """Compute a batch in ever smaller micro-batches until it fits, for the pre-flight check.

        Only the budget is changed: weights, gradients, random numbers and statistics are left as they were.

        Args:
            place: ``"training"`` or ``"evaluation"``: what is computed of the batch.
            batch: The batch. No gradients may exist yet.

        Returns:
            The clips of a micro-batch that fits.
        """
        model = self.ranks.inner(self.trainer.model_wrapped)
        with cpu_generators_kept():
            if place == "training":
                self.engine.rehearse(batch, (model, (), {}))
                self.engine.left_out.count = 0
            else:
                model.eval()
                self._evaluation.prediction_step(model, batch, prediction_loss_only=False)
                model.train()
        return self.budgets[place].size(extent(batch), batch_size(batch))

    def snapshot(self, place: str, error: BaseException) -> str:
        """Write a memory snapshot of the GPU.

        Args:
            place: What was computed: ``"training"``, ``"evaluation"``, ``"optimizer"`` or ``"saving"``.
            error: The out-of-memory error.

        Returns:
            The file's path; empty where snapshots are off.
        """
        return self.snapshots.take(place, error) if self.snapshots else ""

    def _predicted(self, place: str) -> tuple[float, dict[str, Any]] | None:
        """The predicted memory of the micro-batch that was computed last: see ``Budget.prediction``."""
        piece = self.attempts.piece()
        if piece is None or place == "saving":
            return None
        kind = "train"
        if place == "evaluation":
            kind = "generate" if getattr(self.trainer.args, "predict_with_generate", False) else "evaluate"
        return self.budgets["training"].prediction(piece, kind)

    def _save_after_lost_gpu(self, error: Exception) -> str:
        """Save what can be saved after ``error`` has destroyed the CUDA context; returns a sentence that says where."""
        calls = self.window.calls
        rows = self.rows.of(len(calls) - 1, None, batch_size(calls[-1].inputs)) if calls else None
        where = f"its batch holds the rows {listed(rows)} of the dataset; " if rows else ""
        return where + _write_state(self.trainer, self.attempts.events, error)


def _write_state(trainer: Trainer, events: list[GuardEvent], error: Exception) -> str:
    """Write the Trainer's state to ``output_dir``; returns a sentence with the file and the last checkpoint.

    Weights and the optimizer's state are on the GPU: reading them would fail or hang. The Trainer's state and log are
    in host memory. An error of writing is reported in the sentence, as ``error`` is about to be raised.
    """
    from transformers.trainer_utils import get_last_checkpoint

    folder = Path(trainer.args.output_dir)
    state = trainer.state
    record = {
        "error": "".join(traceback.format_exception_only(type(error), error)).strip(),
        "global_step": state.global_step,
        "epoch": state.epoch,
        "max_steps": state.max_steps,
        "log_history": state.log_history,
        "events": [dataclasses.asdict(event) for event in events],
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / _FAILURE_FILE, json.dumps(record, indent=1, default=str).encode())
        last = get_last_checkpoint(str(folder))
    except OSError as failed:
        return f"cannot write the state of the training: {failed}"
    advice = f"continue from {last}" if last else "there is no checkpoint to continue from"
    return f"the log is in {folder / _FAILURE_FILE}; {advice}"
