"""What the next attempt of a training begins with: initial state, callbacks' states, batch, a new accelerator."""

from __future__ import annotations

import copy
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import Trainer
from transformers.trainer_callback import ExportableState, TrainerCallback

from .._core.modules import all_tensors, changing_tensors, checkpoint_options, switch_off_checkpointing
from .._core.output import listed, logger
from .._core.random_state import rng_state, set_rng_state
from ..plan.plan_record import RECOMPUTING, PlanRecord
from ..predict.trainer_settings import recomputes

_INITIAL_STATE = "initial-state.pt"
CALLBACKS_FILE = "asrconfig_callbacks.pt"
_DEPTH = 4  # of lists, dictionaries and objects that are looked into


class InitialState:
    """The model, optimizer, scheduler and random numbers before the first step.

    The tensors are kept in a file next to the run's record rather than in RAM: a copy of a large model's weights
    besides the loader's workers is what small machines lack. The file is written whole or not at all, and removed at
    the end. Kept are the trainable parameters and the buffers; frozen parameters do not change. A ``model_init`` makes
    the model again on its own.
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


class CallbackStates:
    """The states of one Trainer's callbacks. There are three kinds that a restart concerns:

    - those with ``ExportableState``, such as early stopping, which the Trainer saves: a copy is kept by checkpoint;
    - those with ``state_dict`` and ``load_state_dict``, such as averages of weights: a file in the checkpoint;
    - those that hold tensors and have neither: nothing can put them back, see ``lost``.
    """

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        self._exported: dict[Path | None, list[tuple[TrainerCallback, dict[str, Any]]]] = {}
        self._initial: dict[str, Any] = {}

    def keep(self, checkpoint: Path | None) -> None:
        """Keep what there is at a checkpoint, or where this process begins (None). Raises ``OSError``."""
        exporting = [c for c in self._callbacks() if isinstance(c, ExportableState)]
        self._exported[checkpoint] = [(c, copy.deepcopy(c.state()["attributes"])) for c in exporting]
        if checkpoint is None:
            self._initial = copy.deepcopy(self._dicts())
        elif self._trainer.args.should_save and (states := self._dicts()):
            torch.save(states, checkpoint / CALLBACKS_FILE)

    def restore(self, checkpoint: Path | None) -> None:
        """Put back what ``keep`` kept in this process."""
        for callback, attributes in self._exported.get(checkpoint, []):
            _set(callback, attributes)
        self._load(self._initial if checkpoint is None else _file(checkpoint))

    def resume(self, checkpoint: Path) -> None:
        """Put back what another process saved: the Trainer restores exported states on request only."""
        state = json.loads((checkpoint / "trainer_state.json").read_text(encoding="utf-8"))
        by_name: dict[str, list[TrainerCallback]] = {}
        for callback in self._callbacks():
            if isinstance(callback, ExportableState):
                by_name.setdefault(type(callback).__name__, []).append(callback)
        for name, callbacks in by_name.items():
            saved = state.get("stateful_callbacks", {}).get(name, [])
            saved = (saved if isinstance(saved, list) else [saved])[-len(callbacks) :]  # each save appends to a list
            for callback, values in zip(callbacks, saved, strict=False):
                _set(callback, values.get("attributes", {}))
        self._load(_file(checkpoint))

    def lost(self) -> list[str]:
        """The callbacks whose tensors no checkpoint holds, and where they hold them, in words."""
        own = {id(t) for t in (*self._trainer.model.parameters(), *self._trainer.model.buffers())}
        descriptions = []
        for callback in self._callbacks():
            foreign = type(callback).__module__.split(".")[0] not in ("transformers", "asrconfig_go")
            if foreign and not isinstance(callback, ExportableState) and not _saves(callback):
                names = [n for n, value in vars(callback).items() if any(id(t) not in own for t in _tensors_in(value))]
                if names:
                    descriptions.append(f"{type(callback).__name__} ({listed(names)})")
        return descriptions

    def _callbacks(self) -> list[TrainerCallback]:
        return list(self._trainer.callback_handler.callbacks)

    def _dicts(self) -> dict[str, Any]:
        return {name: callback.state_dict() for name, callback in self._saving().items()}

    def _saving(self) -> dict[str, TrainerCallback]:
        """The callbacks with ``state_dict``, by class and number, as a new process will have them."""
        callbacks: dict[str, TrainerCallback] = {}
        for callback in self._callbacks():
            if _saves(callback) and not isinstance(callback, ExportableState):
                kind = type(callback).__qualname__
                callbacks[f"{kind} {sum(name.startswith(f'{kind} ') for name in callbacks)}"] = callback
        return callbacks

    def _load(self, states: Mapping[str, object]) -> None:
        for name, callback in self._saving().items():
            if name in states:
                callback.load_state_dict(copy.deepcopy(states[name]))


def _set(callback: TrainerCallback, attributes: Mapping[str, object]) -> None:
    for name, value in copy.deepcopy(attributes).items():
        setattr(callback, name, value)


def _saves(callback: TrainerCallback) -> bool:
    return all(callable(getattr(callback, name, None)) for name in ("state_dict", "load_state_dict"))


def _file(checkpoint: Path) -> dict[str, Any]:
    path = checkpoint / CALLBACKS_FILE
    states: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True) if path.is_file() else {}
    return states


def _tensors_in(value: object, depth: int = _DEPTH) -> Iterator[torch.Tensor]:
    """The tensors of a value, its items and its attributes, but not a Trainer's, an optimizer's or a dataset's."""
    if isinstance(value, torch.Tensor):
        yield value
        return
    if isinstance(value, torch.nn.Module):
        yield from (*value.parameters(), *value.buffers())
        return
    if not depth or isinstance(value, str | bytes | int | float | type(None) | type):
        return
    if isinstance(value, dict):
        items = list(value.values())
    elif isinstance(value, list | tuple | set):
        items = list(value)
    else:
        items = [] if _is_library_object(value) else list(getattr(value, "__dict__", {}).values())
    for item in items:
        yield from _tensors_in(item, depth - 1)


def _is_library_object(value: object) -> bool:
    kinds = (Trainer, torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler, torch.utils.data.Dataset)
    foreign = type(value).__module__.split(".")[0] in ("transformers", "accelerate", "datasets", "tokenizers")
    return foreign or callable(value) or isinstance(value, (*kinds, torch.utils.data.DataLoader))


def use_batch(trainer: Trainer, batch: tuple[int, ...]) -> None:
    """Set the Trainer's batch of a device and its accumulation steps, also where it has taken them already."""
    args = trainer.args
    if (args.per_device_train_batch_size, args.gradient_accumulation_steps) != batch:
        args.per_device_train_batch_size, args.gradient_accumulation_steps = batch
        renew_accelerator(trainer)


def use_planned_checkpointing(trainer: Trainer, config: PlanRecord) -> Callable[[], None]:
    """Let ``trainer`` recompute as the plan does with the guard, where its arguments are those for a Trainer without
    the guard.

    Returns the function that puts the arguments back.
    """
    args, alone = trainer.args, config.without_guard()
    batch = (args.per_device_train_batch_size, args.gradient_accumulation_steps, recomputes(args))
    as_alone = (alone.per_device_train_batch_size, alone.gradient_accumulation_steps, alone.gradient_checkpointing)
    if batch != as_alone or all(getattr(alone, name) == getattr(config, name) for name in RECOMPUTING):
        return lambda: None
    options: dict[str, Any] = checkpoint_options(config.every_n_layers, config.offload_checkpoints)
    settings = {
        "checkpointing": config.gradient_checkpointing,
        "checkpointing_kwargs": {"use_reentrant": False, **options} if config.gradient_checkpointing else None,
    }
    # Of the two names the first is that before transformers 5.
    named = {f"{kind}_{name}": value for kind in ("gradient", "activation") for name, value in settings.items()}
    before = {name: getattr(args, name) for name in named if hasattr(args, name)}
    vars(args).update({name: named[name] for name in before})
    if not config.gradient_checkpointing:
        switch_off_checkpointing(trainer.model)  # an earlier training by the Trainer alone has switched it on
    return lambda: vars(args).update(before)


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
