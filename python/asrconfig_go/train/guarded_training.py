"""Guarded trainings, which restart when a step cannot be retried, and resume after a kill."""

from __future__ import annotations

import math
import os
import time
import traceback
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from .._core.out_of_memory import add_note, classify, clear_frames, first_line, free_memory
from .._core.output import listed, logger
from .._core.settings import MAX_RETRIES
from .._core.training_session import sharded, single_process
from ..errors import AsrConfigError, InfeasiblePlanError, StorageError
from ..guard.micro_batches import Retries
from ..guard.process_group import ProcessGroup
from ..guard.training_report import BadBatch, GuardEvent, Restart, TrainingReport
from .checkpoints import disk_errors_explained, saved_so_far
from .restart import AllStepsMade, RunCheckpoints
from .resume import start_point
from .run_record import RunLock, folder_of
from .train_options import DeadlineCallback, StepProfile, check_options, deadline_of
from .trainer_reset import InitialState, release_attempt, renew_accelerator, use_batch

if TYPE_CHECKING:
    from transformers import Trainer

_EVALUATION = ("evaluation_loop", "prediction_loop")


class _Incidents(NamedTuple):
    """What one process has met since this start: see ``TrainingReport``."""

    events: list[GuardEvent]
    bad_batches: list[BadBatch]
    skipped_samples: int
    bad_samples: int


class GuardedTraining:
    """``trainer.train(**train_arguments)`` under a guard, from a run's start_point or from where it was interrupted.

    The guard computes steps again that run out of GPU memory. Where memory runs out outside of steps (a callback, an
    optimizer step that was half done), training continues in this process from the last complete checkpoint of this
    run, or from where it began, with half of the guard's limit, at most ``max_retries`` times, 0 to 100. With several
    processes or GPUs nothing restarts in the process, since the others would wait for ever: the smaller limit is
    stored, and the error names what to restart with. See ``manager.train`` for ``resume``, ``save_by`` and ``profile``.

    A guard that is attached already stays when this ends. The sampling of every ``AdaptiveMemoryCallback`` ends with
    the training, after exceptions and Ctrl-C too.
    """

    def __init__(
        self,
        trainer: Trainer,
        *,
        resume: bool | str | os.PathLike[str] = False,
        max_retries: int = MAX_RETRIES,
        save_by: str | None = None,
        profile: int | None = None,
        **train_arguments: object,
    ) -> None:
        """Takes the folder's lock and attaches a guard. Raises ``InvalidArgumentError``; see ``start_point``, too.

        Both are held until ``train`` ends, or until this object does.
        """
        from ..guard.attachment import attach, guard_of

        check_options(trainer, resume, max_retries, train_arguments)
        self._deadline = deadline_of(save_by) if save_by is not None else None
        self._stop: DeadlineCallback | None = None
        self._profile = None if profile is None else StepProfile(profile)
        self.trainer, self.max_retries, self.arguments = trainer, max_retries, train_arguments
        self._retries = Retries(max_retries, repeated=True)
        self._alone = single_process(trainer) and trainer.args.n_gpu <= 1
        self._from, self._error, self._undo = 0.0, "", ExitStack()
        self._journal: RunCheckpoints | None = None
        self._folder = folder_of(trainer)
        self._lock = RunLock(self._folder.path) if trainer.is_world_process_zero() else None
        own = guard_of(trainer) is None
        try:
            self._start = start_point(trainer, resume)
            self._guard = attach(trainer)
        except BaseException:
            self._release()  # a notebook keeps the exception, and this object with it
            raise
        if own:
            self._undo.callback(self._guard.detach)
        self._events_before, self._bad_before = len(self._guard.events), len(self._guard.bad_batches)
        self._skipped_before, self._bad_clips_before = self._guard.skipped, self._guard.bad_clips
        self._resume = self._begin = str(self._start.checkpoint) if self._start.checkpoint else None
        self._record = self._start.record
        self._events, self._bad_batches = list(self._record.events), list(self._record.bad_batches)
        self._of_ranks: list[_Incidents] | None = None  # of all processes, once the training has come to its end

    def train(self) -> Any:
        """What ``trainer.train()`` returns.

        Raises ``InfeasiblePlanError``, chained to the trainer's exception, when no smaller micro-batch or no retry is
        left. Any other exception is the trainer's own, with a note on what it means.
        """
        self._from = time.monotonic()
        try:
            with disk_errors_explained(self._folder.path.parent, lambda: self.trainer):
                self._set_up()
                return self._attempts()
        except BaseException as error:
            if isinstance(error, StorageError):
                error.hint += f"; then continue with resume=True (--resume): {saved_so_far(self._folder.path.parent)}"
            kind, message = type(error).__name__, first_line(error)
            self._error = kind if message == kind else f"{kind}: {message}"
            raise
        finally:
            try:
                self._close()
            finally:
                self._release()

    def report(self) -> TrainingReport:
        """What was met so far."""
        limit, of_ranks = self._guard.budgets["training"], self._incidents()
        return TrainingReport(
            steps=self.trainer.state.global_step,
            planned_steps=self._record.max_steps,
            resumed_from=self._begin or "",
            restarts=tuple(self._record.restarts),
            events=tuple(self._record.events),
            skipped_samples=sum(incidents.skipped_samples for incidents in of_ranks),
            batch=self._record.batch,
            limit_samples=limit.samples,
            limit_values=limit.values,
            seconds=time.monotonic() - self._from,
            error=self._error,
            finished=self._journal is not None and self._journal.nothing_left,
            changes=self._start.changes,
            stopped=self._stop.summary(self._folder.path.parent) if self._stop else "",
            profile=self._profile.files if self._profile else (),
            bad_batches=tuple(self._record.bad_batches),
            bad_samples=sum(incidents.bad_samples for incidents in of_ranks),
        )

    def _set_up(self) -> None:
        trainer = self.trainer
        for place, (samples, values) in self._record.limits.items():
            self._guard.budgets[place].lower(samples, values)
        if self._profile is not None:
            trainer.add_callback(self._profile)
            self._undo.callback(trainer.remove_callback, self._profile)
            self._undo.callback(self._profile.close)
        use_batch(trainer, self._record.batch[:2])
        self._journal = RunCheckpoints(trainer, self._start, self._folder, self._news)
        self._undo.callback(self._journal.install())
        self._initial = InitialState(trainer, self._folder.path)
        self._initial.discard()  # a killed process leaves its own behind
        if self._alone and self.max_retries and self._begin is None:
            self._initial.keep()
        self._undo.callback(self._initial.discard)
        if self._deadline is not None:
            self._stop = DeadlineCallback(trainer, self._deadline, lambda: self._initial.bytes_s)
            trainer.add_callback(self._stop)
            self._undo.callback(trainer.remove_callback, self._stop)

    def _attempts(self) -> Any:
        from transformers.trainer_utils import TrainOutput

        while True:
            try:
                output = self.trainer.train(resume_from_checkpoint=self._resume, **self.arguments)
                self._of_ranks = ProcessGroup(self.trainer).gathered(*self._incidents())
                return output
            except AllStepsMade:  # the model has the checkpoint's weights
                self.trainer.is_in_train = False
                return TrainOutput(self.trainer.state.global_step, math.nan, {})
            except Exception as error:
                restart = self._decide(error)
                if restart is None:
                    raise
                clear_frames(error)
            # Outside of the except block: nothing holds the failed step any more.
            self._go_on(restart)

    def _close(self) -> None:
        self._news()
        # Where another process has failed, it has stored what this one does not know.
        if self.trainer.args.should_save and self._record.max_steps and (self._alone or not self._error):
            self._folder.write(self._record)
        for callback in self.trainer.callback_handler.callbacks:
            if getattr(callback, "samples_memory", False):
                callback.stop()
        self._undo.close()

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.release()

    def _incidents(self) -> list[_Incidents]:
        """The incidents of all processes, or of this one while the training runs."""
        guard = self._guard
        events, bad_batches = guard.events[self._events_before :], guard.bad_batches[self._bad_before :]
        skipped, bad_clips = guard.skipped - self._skipped_before, guard.bad_clips - self._bad_clips_before
        return self._of_ranks or [_Incidents(events, bad_batches, skipped, bad_clips)]

    def _news(self) -> bool:
        """Update the record; returns whether it changed."""
        record, guard = self._record, self._guard
        limits = {place: (budget.samples, budget.values) for place, budget in guard.budgets.items()}
        of_ranks = self._incidents()
        events = self._events + [event for incidents in of_ranks for event in incidents.events]
        bad_batches = self._bad_batches + [batch for incidents in of_ranks for batch in incidents.bad_batches]
        counts = (len(events), len(bad_batches))
        if (limits, counts) == (record.limits, (len(record.events), len(record.bad_batches))):
            return False
        record.limits, record.events, record.bad_batches = limits, events, bad_batches
        return True

    def _decide(self, error: Exception) -> Restart | None:
        """How to continue; None when ``error``, now with a note, must be raised."""
        if isinstance(error, AsrConfigError):
            return None  # the guard's last word
        diagnosis = classify(error)
        if diagnosis["class"] not in ("gpu_oom", "maybe"):
            if diagnosis["class"] != "other":
                add_note(error, diagnosis["advice"])
            return None
        names = {frame.f_code.co_name for frame, _ in traceback.walk_tb(error.__traceback__)}
        place = "training" if names.isdisjoint(_EVALUATION) else "evaluation"
        if place == "training" and self._guard.unfit:
            return None  # no micro-batch would be smaller; the guard has said why
        before = self._limit(place)
        decided = self._retries.next(diagnosis["class"], place, before)
        if decided["action"] == "raise":
            add_note(error, decided["reason"])
            return None
        if decided["action"] != "shrink":
            raise InfeasiblePlanError(
                f"training ran out of GPU memory: {first_line(error)}", decided["reason"]
            ) from error
        step = self.trainer.state.global_step
        restart = Restart(step, step, place, before, decided["micro_batch"], first_line(error))
        return restart if self._can_go_on(error, restart) else None

    def _limit(self, place: str) -> int:
        """The most samples of a micro-batch; where values limit it, those of the last that ran out of memory."""
        args = self.trainer.args
        batch = int(args.train_batch_size if place == "training" else args.eval_batch_size)
        self._news()
        budget = self._guard.budgets[place]
        places = (place, "pre-flight") if place == "training" else (place,)
        lowered = [e.micro_batch_after for e in self._record.events if e.place in places and budget.values is not None]
        return min([batch, *lowered[-1:], budget.samples or batch])

    def _can_go_on(self, error: Exception, restart: Restart) -> bool:
        assert self._journal is not None  # set up before anything can fail
        if not self._alone:
            self._store(restart)
            launcher = "restart all processes, as torchrun --max-restarts=3 does, with manager.train(…, resume=True)"
            size = f"in micro-batches of {restart.after} instead of {restart.before}, the same effective batch"
            reason = f": {launcher}; it continues from the last checkpoint {size}"
        elif lost := self._journal.states.lost():
            reason = f", and training cannot restart: {listed(lost)} would not be put back"
        elif self._journal.latest() is None and self._begin is None and not self._initial.can_restore():
            reason = ": there is neither a checkpoint of this run nor its initial state to continue from"
        else:
            return True
        add_note(error, f"GPU memory ran out{reason}")
        return False

    def _store(self, restart: Restart) -> None:
        """Store the smaller micro-batch for the next start, from whichever process failed."""
        devices = max(1, self.trainer.args.n_gpu)
        if not sharded(self.trainer) and devices == 1:
            self._shrink(restart)
            self._news()
        elif restart.place == "training":
            self._record.micro_batch = max(1, restart.after // devices)
        self._folder.write(self._record)

    def _shrink(self, restart: Restart) -> None:
        budget = self._guard.budgets[restart.place]
        values = None if budget.values is None else max(1, budget.values // 2)
        budget.lower(restart.after if budget.samples is not None or values is None else None, values)

    def _go_on(self, restart: Restart) -> None:
        """Free what the failed attempt holds, and set up the trainer for the next one."""
        assert self._journal is not None
        self._shrink(restart)
        self._guard.release()
        release_attempt(self.trainer)
        self._initial.restore_objects()
        free_memory()
        renew_accelerator(self.trainer)
        checkpoint = self._journal.latest()
        self._resume = str(checkpoint) if checkpoint else self._begin
        if self._resume is None:
            self._initial.restore_values()
        since = self._journal.rewind(checkpoint)
        self._record.restarts.append(replace(restart, since=since))
        self._news()
        logger.warning("%s; continuing from %s", self._record.restarts[-1], self._resume or "the start")
