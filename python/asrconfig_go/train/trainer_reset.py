"""What the next attempt of a training begins with: the initial state, the batch, a new accelerator."""

from __future__ import annotations

import copy
import logging
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from .._core.modules import all_tensors, changing_tensors
from .._core.random_state import rng_state, set_rng_state

if TYPE_CHECKING:
    from transformers import Trainer

logger: logging.Logger = logging.getLogger("asrconfig_go")

_INITIAL_STATE = "initial-state.pt"


class InitialState:
    """The model, optimizer, scheduler and random numbers before the first step.

    The tensors are kept in a file next to the run's record rather than in RAM: a copy of a large model's weights
    besides the loader's workers is what small machines lack. The file is written whole or not at all, and removed at
    the end. Kept are the trainable parameters and the buffers; frozen parameters do not change. A ``model_init`` makes
    the model again by itself.
    """

    def __init__(self, trainer: Trainer, folder: Path) -> None:
        from accelerate.optimizer import AcceleratedOptimizer

        self._trainer = trainer
        self._path = folder / _INITIAL_STATE
        optimizer = trainer.optimizer
        self._optimizer = optimizer.optimizer if isinstance(optimizer, AcceleratedOptimizer) else optimizer
        self._scheduler = None if trainer._created_lr_scheduler else trainer.lr_scheduler
        self._scheduler_state = copy.deepcopy(self._scheduler.state_dict()) if self._scheduler else None
        self._rng = rng_state()
        self.kept = False
        self.bytes_s: float | None = None
        """How fast the file was written, None without one."""

    def keep(self) -> None:
        """Write the file. When it cannot be written, only checkpoints can be continued from, which is logged."""
        state = {"model": {} if self._trainer.model_init else changing_tensors(self._trainer.model)}
        if self._optimizer is not None:
            state["optimizer"] = self._optimizer.state_dict()
        part = self._path.with_name(f"{self._path.stem}{os.urandom(4).hex()}.part")
        begin = time.monotonic()
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with part.open("xb") as file:
                torch.save(state, file)
                file.flush()
                os.fsync(file.fileno())
            self.bytes_s = part.stat().st_size / max(time.monotonic() - begin, 1e-3)
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
        return bool(self._trainer.model_init) or set(changing_tensors(self._trainer.model)) <= set(state["model"])

    def restore_objects(self) -> None:
        """Put back random numbers and the given optimizer and scheduler, without their state; others are made again."""
        trainer = self._trainer
        set_rng_state(self._rng)
        trainer.optimizer, trainer.lr_scheduler = self._optimizer, self._scheduler
        trainer._created_lr_scheduler = False
        if self._optimizer is not None:
            self._optimizer.state.clear()

    def restore_values(self) -> None:
        """Put back weights, buffers and the state of the given optimizer and scheduler."""
        state = torch.load(self._path, map_location="cpu", mmap=True, weights_only=True)
        tensors = dict(all_tensors(self._trainer.model)) if state["model"] else {}
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


def use_batch(trainer: Trainer, batch: tuple[int, ...]) -> None:
    """Set the Trainer's batch of a device and its accumulation steps, also where it has taken them already."""
    args = trainer.args
    if (args.per_device_train_batch_size, args.gradient_accumulation_steps) != batch:
        args.per_device_train_batch_size, args.gradient_accumulation_steps = batch
        renew_accelerator(trainer)


def release_attempt(trainer: Trainer) -> None:
    """Drop the references that a failed ``train()`` leaves behind, on the GPU and on the host."""
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


def renew_accelerator(trainer: Trainer) -> None:
    """Create the accelerator again: it may hold the accumulation steps, and a loss scaler in the middle of a step."""
    options = trainer.args.accelerator_config.gradient_accumulation_kwargs
    if options:
        options.pop("num_steps", None)  # written there by the trainer when it made the first one
    trainer.create_accelerator_and_postprocess()
