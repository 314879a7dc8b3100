"""What a training run needs to go on after a failure: checkpoints of its own, its initial state, its random numbers."""

from __future__ import annotations

import copy
import logging
import os
from pathlib import Path
from typing import Any

import torch
from transformers.trainer_callback import ExportableState, TrainerCallback

from .randomness import rng_state, set_rng_state

logger = logging.getLogger("asrconfig_go")

_INITIAL_STATE = ".asrconfig-initial-state.pt"
_CHECKPOINT_FILES = ("trainer_state.json", "optimizer.pt", "scheduler.pt")


class Journal(TrainerCallback):  # type: ignore[misc]
    """Writes down, while a run lasts, what a retry needs and the Trainer does not keep.

    - which checkpoints are this run's: ``output_dir`` may hold those of earlier ones;
    - the random numbers at the begin of each epoch: length-grouped orders are drawn from them, and a resumed Trainer
      would draw another order for the epoch in which it goes on;
    - the state of stateful callbacks, such as early stopping, at each checkpoint.
    """

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._checkpoints: list[Path] = []
        self._epochs: dict[int, dict[str, Any]] = {}  # by the global step at which they begin
        self._callbacks: dict[Path | None, list[tuple[Any, Any]]] = {None: self._callback_states()}
        self._resuming = False
        self._max_steps: int | None = None

    def latest(self) -> Path | None:
        """This run's newest complete checkpoint that is still there."""
        complete = (c for c in reversed(self._checkpoints) if all((c / f).is_file() for f in _CHECKPOINT_FILES))
        return next(complete, None)

    def rewind(self, checkpoint: Path | None, resuming: bool) -> None:
        """Prepare for a retry from ``checkpoint``, or from where the run began (None).

        ``resuming`` says whether the Trainer will load a checkpoint, this run's or the one that it began with.
        """
        self._resuming = resuming and bool(self._epochs)
        if not resuming:
            self._epochs.clear()
        for callback, attributes in self._callbacks.get(checkpoint, []):
            for name, value in copy.deepcopy(attributes).items():
                setattr(callback, name, value)

    def _callback_states(self) -> list[tuple[Any, Any]]:
        stateful = [c for c in self._trainer.callback_handler.callbacks if isinstance(c, ExportableState)]
        return [(callback, copy.deepcopy(callback.state()["attributes"])) for callback in stateful]

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Refuse another schedule than the first attempt's; let later checkpoints tell the batch size really used."""
        state.train_batch_size = args.train_batch_size
        if self._max_steps is None:
            self._max_steps = state.max_steps
        if state.max_steps != self._max_steps:
            raise ScheduleChangedError(f"{state.max_steps} optimizer steps instead of {self._max_steps}")

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Keep the epoch's random numbers, or put back those of the epoch in which training goes on."""
        if not self._resuming:
            self._epochs[state.global_step] = rng_state()
            return
        self._resuming = False
        begun = [step for step in self._epochs if step <= state.global_step]
        if begun:
            set_rng_state(self._epochs[max(begun)])

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Remember a checkpoint that was written whole."""
        checkpoint = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        self._checkpoints = [c for c in self._checkpoints if c != checkpoint] + [checkpoint]
        self._callbacks[checkpoint] = self._callback_states()


class ScheduleChangedError(Exception):
    """The smaller micro-batch would change the number of optimizer steps."""


class InitialState:
    """The model, optimizer, scheduler and random numbers before the first step.

    The tensors are kept in a file in ``output_dir`` rather than in RAM: a copy of a large model's weights beside the
    loader's workers is what small machines lack. The file is written whole or not at all, and removed at the end.
    Kept are the trainable parameters and the buffers; frozen parameters do not change. A ``model_init`` makes the model
    anew by itself.
    """

    def __init__(self, trainer: Any) -> None:
        from accelerate.optimizer import AcceleratedOptimizer

        self._trainer = trainer
        self._path = Path(trainer.args.output_dir) / _INITIAL_STATE
        given = trainer.optimizer
        self._optimizer = given.optimizer if isinstance(given, AcceleratedOptimizer) else given
        self._scheduler = None if trainer._created_lr_scheduler else trainer.lr_scheduler
        self._scheduler_state = copy.deepcopy(self._scheduler.state_dict()) if self._scheduler else None
        self._rng = rng_state()
        self.kept = False

    def keep(self) -> None:
        """Write the file. When it cannot be written, only checkpoints can be continued from, which is logged."""
        state = {"model": {} if self._trainer.model_init else _changing_tensors(self._trainer.model)}
        if self._optimizer is not None:
            state["optimizer"] = self._optimizer.state_dict()
        part = self._path.with_suffix(".part")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with part.open("wb") as file:
                torch.save(state, file)
                file.flush()
                os.fsync(file.fileno())
            part.replace(self._path)
            self.kept = True
        except (OSError, RuntimeError) as error:  # torch reports a full disk as a RuntimeError
            part.unlink(missing_ok=True)
            logger.warning("cannot keep the initial state (%s): only checkpoints can be continued from", error)

    def can_restore(self) -> bool:
        """False without a file, and after parameters were unfrozen whose initial values were not kept."""
        if not self.kept:
            return False
        state = torch.load(self._path, map_location="cpu", mmap=True, weights_only=True)
        return bool(self._trainer.model_init) or set(_changing_tensors(self._trainer.model)) <= set(state["model"])

    def restore_objects(self) -> None:
        """Put back random numbers and the given optimizer and scheduler, without their state; others are made anew."""
        trainer = self._trainer
        set_rng_state(self._rng)
        trainer.optimizer, trainer.lr_scheduler = self._optimizer, self._scheduler
        trainer._created_lr_scheduler = False
        if self._optimizer is not None:
            self._optimizer.state.clear()

    def restore_values(self) -> None:
        """Put back weights, buffers and the state of the given optimizer and scheduler."""
        state = torch.load(self._path, map_location="cpu", mmap=True, weights_only=True)
        tensors = dict(_all_tensors(self._trainer.model)) if state["model"] else {}
        with torch.no_grad():
            for name, value in state["model"].items():
                tensors[name].copy_(value)
        if self._optimizer is not None:
            self._optimizer.load_state_dict(state["optimizer"])
        if self._scheduler is not None:
            self._scheduler.load_state_dict(copy.deepcopy(self._scheduler_state))

    def discard(self) -> None:
        """Remove the file."""
        self._path.unlink(missing_ok=True)
        self.kept = False


def _all_tensors(model: Any) -> list[tuple[str, Any]]:
    return [*model.named_parameters(), *model.named_buffers()]


def _changing_tensors(model: Any) -> dict[str, Any]:
    buffers = {name for name, _ in model.named_buffers()}
    return {name: t.detach() for name, t in _all_tensors(model) if name in buffers or t.requires_grad}
