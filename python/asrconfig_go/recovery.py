"""Training that survives running out of GPU memory: smaller micro-batches, the same effective batch."""

from __future__ import annotations

import logging
import os
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from . import _lib
from ._errors import InfeasiblePlanError, InvalidArgumentError, LibraryError
from .gradient_scale import GradientScale, override
from .out_of_memory import classify, clear_frames, first_line, free_memory, note

if TYPE_CHECKING:
    from .callback import AdaptiveMemoryCallback

logger = logging.getLogger("asrconfig_go")

_MAX_RETRIES = 100  # the library's limit
_EVALUATION = ("evaluation_loop", "prediction_loop")


def train_with_recovery(
    trainer: Any,
    *,
    max_retries: int = 3,
    callback: AdaptiveMemoryCallback | None = None,
    **train_arguments: Any,
) -> Any:
    """``trainer.train(**train_arguments)``, continued with a smaller micro-batch when GPU memory runs out.

    The micro-batch is halved and accumulation doubled (evaluation: its batch is halved), at most ``max_retries`` times,
    0 to 100. Training goes on from the last checkpoint that this run has written, or from where it began: the
    checkpoint given as ``resume_from_checkpoint``, else the initial weights, optimizer and random numbers. Samples,
    their order, the schedule and the number of steps are those of an undisturbed run; dropout masks are not, since
    they are drawn for micro-batches. Gradients do not depend on the micro-batch as far as ``gradient_scale`` says;
    random augmentation in loader workers, and data sets whose own order changes, cannot be repeated exactly.
    The smaller sizes stay in ``trainer.args``.

    ``callback`` is added to the trainer if it is not there; the sampling of every ``AdaptiveMemoryCallback`` ends with
    this call, after exceptions and Ctrl-C too.

    Raises ``InfeasiblePlanError``, chained to the trainer's exception, when no smaller micro-batch or no retry is left.
    Any other exception is the trainer's own, with a note on what it means. With several processes, DeepSpeed or FSDP
    nothing is retried, since the others would wait for ever; the note says what to restart with.
    """
    if isinstance(max_retries, bool) or not isinstance(max_retries, int) or not 0 <= max_retries <= _MAX_RETRIES:
        raise InvalidArgumentError(f"max_retries = {max_retries!r} is not a whole number from 0 to 100", "3 is usual")
    if trainer.args.auto_find_batch_size:
        raise InvalidArgumentError(
            "auto_find_batch_size loses the effective batch, and would keep errors from being seen here",
            "set auto_find_batch_size=False: recovery finds a fitting micro-batch itself",
        )
    if callback is not None:
        callback.attach(trainer)
    run = _Run(trainer, max_retries, train_arguments)
    try:
        return run.train()
    finally:
        run.close()


class _Run:
    """One call: its attempts, and what they share."""

    def __init__(self, trainer: Any, max_retries: int, arguments: dict[str, Any]) -> None:
        from .restart import InitialState, Journal

        self.trainer, self.max_retries, self.arguments = trainer, max_retries, arguments
        self.retries = self.maybe_retries = 0
        self.begin = self.resume = _resume_point(trainer, arguments.pop("resume_from_checkpoint", None))
        self.scale, self.journal, self.initial = GradientScale(trainer), Journal(trainer), InitialState(trainer)
        self.single = single_process(trainer)
        self.undo_batch_size = _use_batch_size_of_args(trainer)

    def train(self) -> Any:
        from .restart import ScheduleChangedError

        self.trainer.add_callback(self.journal)
        if self.single and self.max_retries and self.begin is None:
            self.initial.keep()
        failure: Exception | None = None
        decision: dict[str, Any] | None = None
        while True:
            try:
                self.scale.install()
                return self.trainer.train(resume_from_checkpoint=self.resume, **self.arguments)
            except ScheduleChangedError as changed:
                message = f"a smaller micro-batch would change the schedule: {changed}"
                raise InfeasiblePlanError(message, f"restart with {_words(decision or {})}") from failure
            except Exception as error:
                decision = self.decide(error)
                if decision is None:
                    raise
                clear_frames(error)
                failure = error.with_traceback(None)
            # Outside of the except block: nothing holds the failed step any more.
            self.go_on(decision)

    def close(self) -> None:
        from .callback import AdaptiveMemoryCallback

        trainer = self.trainer
        self.scale.remove()
        self.initial.discard()
        self.undo_batch_size()
        trainer.remove_callback(self.journal)
        for callback in trainer.callback_handler.callbacks:
            if isinstance(callback, AdaptiveMemoryCallback):
                callback.stop()

    def decide(self, error: Exception) -> dict[str, Any] | None:
        """How to go on; None when ``error``, by now with a note, is to be raised."""
        try:
            found = classify(error)
            if found["class"] not in ("gpu_oom", "maybe"):
                if found["class"] != "other":
                    note(error, found["advice"])
                return None
            decision = self.next_sizes(found["class"], _in_evaluation(error.__traceback__))
        except LibraryError as unavailable:
            note(error, f"no recovery was tried: {unavailable}")
            return None
        if not decision["retry"]:
            if found["class"] == "maybe":
                note(error, decision["reason"])
                return None
            raise InfeasiblePlanError(
                f"training ran out of GPU memory: {first_line(error)}", decision["reason"]
            ) from error
        return decision if self.can_go_on(error, decision) else None

    def next_sizes(self, found: str, evaluation: bool) -> dict[str, Any]:
        args = self.trainer.args
        micro = args.per_device_eval_batch_size if evaluation else args.per_device_train_batch_size
        state = {
            "class": found,
            "micro_batch": micro,
            "accumulation": 1 if evaluation else args.gradient_accumulation_steps,
            "retries": self.retries,
            "maybe_retries": self.maybe_retries,
            "max_retries": self.max_retries,
        }
        decision: dict[str, Any] = _lib.call("recovery.next", state)
        decision["evaluation"] = evaluation
        if evaluation and decision["retry"]:
            decision["reason"] = f"retry {decision['retries']}: evaluation batch {micro} → {decision['micro_batch']}"
        return decision

    def can_go_on(self, error: Exception, decision: dict[str, Any]) -> bool:
        if not self.single:
            why = "several processes cannot recover one by one; restart all of them"
        elif not decision["evaluation"] and not _same_samples(self.trainer, decision["micro_batch"]):
            why = "dataloader_drop_last would drop other samples with a smaller micro-batch; restart"
        elif self.journal.latest() is None and self.begin is None and not self.initial.can_restore():
            why = "there is neither a checkpoint of this run nor its initial state to continue from; restart"
        else:
            return True
        note(error, f"GPU memory ran out: {why} with {_words(decision)}")
        return False

    def go_on(self, decision: dict[str, Any]) -> None:
        """Free what the failed attempt holds, and set the trainer up for the next one."""
        trainer = self.trainer
        self.retries, self.maybe_retries = decision["retries"], decision["maybe_retries"]
        self.scale.remove()
        _let_go(trainer)
        self.initial.restore_objects()
        free_memory()
        for name, value in _settings(decision).items():
            setattr(trainer.args, name, value)
        _renew_accelerator(trainer)
        checkpoint = self.journal.latest()
        self.resume = str(checkpoint) if checkpoint else self.begin
        if self.resume is None:
            self.initial.restore_values()
        self.journal.rewind(checkpoint, resuming=self.resume is not None)
        logger.warning("%s; going on from %s", decision["reason"], self.resume or "the start")


def _settings(decision: dict[str, Any]) -> dict[str, int]:
    """A decision as settings of ``TrainingArguments``."""
    if decision["evaluation"]:
        return {"per_device_eval_batch_size": decision["micro_batch"]}
    return {
        "per_device_train_batch_size": decision["micro_batch"],
        "gradient_accumulation_steps": decision["accumulation"],
    }


def _words(decision: dict[str, Any]) -> str:
    return " and ".join(f"{name}={value}" for name, value in _settings(decision).items())


def _resume_point(trainer: Any, given: Any) -> str | None:
    """The checkpoint that the user asked for, as a path: True would name another one after this run has saved."""
    if given is True:
        from transformers.trainer_utils import get_last_checkpoint

        found = get_last_checkpoint(trainer.args.output_dir)
        if found is None:
            raise InvalidArgumentError(
                f"resume_from_checkpoint=True, but {trainer.args.output_dir} holds no checkpoint",
                "leave it out to train from the start",
            )
        return str(found)
    return os.fspath(given) if given else None


def single_process(trainer: Any) -> bool:
    """Whether no other process takes part in the training."""
    return bool(
        trainer.args.world_size == 1
        and not trainer.is_deepspeed_enabled
        and not trainer.is_fsdp_enabled
        and not getattr(trainer, "is_distributed_loading_by_transformers", False)
    )


def _use_batch_size_of_args(trainer: Any) -> Callable[[], None]:
    """Make the loader's batch size that of ``args``: some versions take the checkpoint's. Gives the way back."""
    original = trainer.get_train_dataloader

    def get_train_dataloader() -> Any:
        trainer._train_batch_size = trainer.args.train_batch_size
        return original()

    return override(trainer, "get_train_dataloader", get_train_dataloader)


def _same_samples(trainer: Any, micro_batch: int) -> bool:
    """Whether an epoch keeps its samples when incomplete batches are dropped."""
    args = trainer.args
    if not args.dataloader_drop_last or not hasattr(trainer.train_dataset, "__len__"):
        return True
    devices = max(1, args.n_gpu)
    before, after = args.per_device_train_batch_size * devices, micro_batch * devices
    size = len(trainer.train_dataset)
    return bool(size // before * before == size // after * after)


def _in_evaluation(trace: TracebackType | None) -> bool:
    return any(frame.f_code.co_name in _EVALUATION for frame, _ in traceback.walk_tb(trace))


def _let_go(trainer: Any) -> None:
    """Drop the references that a failed ``train()`` leaves behind, on the GPU and elsewhere."""
    trainer.model.zero_grad(set_to_none=True)
    handle = getattr(trainer, "neftune_hook_handle", None)
    if handle is not None:
        handle.remove()  # train() will add its noise again
    for loader in trainer.accelerator.gradient_state.dataloader_references:
        if loader is not None:
            loader.end()
    trainer.accelerator.unwrap_model(trainer.model, keep_fp32_wrapper=False)
    trainer.accelerator.free_memory()
    trainer.model_wrapped = trainer.model
    trainer.current_flos = 0
    trainer.__dict__.pop("_eval_dataloaders", None)  # kept, with its batch size, while workers persist
    handler = trainer.callback_handler
    handler.optimizer = handler.lr_scheduler = handler.train_dataloader = handler.eval_dataloader = None
    for callback in handler.callbacks:
        for name in ("training_bar", "prediction_bar"):
            bar = getattr(callback, name, None)
            if bar is not None:
                bar.close()
                setattr(callback, name, None)


def _renew_accelerator(trainer: Any) -> None:
    """Make the accelerator anew: it may hold the accumulation steps, and a loss scaler in the middle of a step."""
    given = trainer.args.accelerator_config.gradient_accumulation_kwargs
    if given:
        given.pop("num_steps", None)  # written there by the trainer when it made the first one
    trainer.create_accelerator_and_postprocess()
