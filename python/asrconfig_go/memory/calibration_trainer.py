"""A few steps of a ``transformers.Trainer`` on made-up clips; everything is restored afterwards."""

from __future__ import annotations

import contextlib
import copy
import tempfile
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader
from transformers.trainer_callback import CallbackHandler, DefaultFlowCallback

from .._base.errors import InvalidArgumentError, UnsupportedError
from .._base.out_of_memory import free_memory
from .._base.wrapped_model import checkpointing_depth, offloads_checkpoints
from .memory_settings import MemorySettings

_FORWARD = ("forward", "_original_forward")


def training_settings(args: Any, model: Any) -> dict[str, Any]:
    """The settings of a trainer with these arguments and this model, as ``MemoryModel.trace`` takes them.

    Which layers are recomputed is read from a prepared model, else from the arguments.
    """
    depth, offloads = checkpointing_depth(model), offloads_checkpoints(model)
    if depth is None:
        kinds = ("gradient", "activation") if recomputes(args) else ()  # the first is the name before transformers 5
        options: dict[str, Any] = {}
        for kind in kinds:
            options |= getattr(args, f"{kind}_checkpointing_kwargs", None) or {}
        depth, offloads = int(options.get("every_n_layers", 1)), bool(options.get("offload"))
    return {
        "precision": "bf16" if args.bf16 else "fp16" if args.fp16 else "fp32",
        "gradient_checkpointing": recomputes(args) or checkpoints(model),
        "every_n_layers": depth,
        "offload_checkpoints": offloads,
        "optimizer": str(getattr(args.optim, "value", args.optim)),
        "accumulation": args.gradient_accumulation_steps,
    }


def recomputes(args: Any) -> bool:
    """Whether a trainer's arguments ask for checkpointing."""
    return bool(getattr(args, "activation_checkpointing", False) or getattr(args, "gradient_checkpointing", False))


def checkpoints(model: Any) -> bool:
    """Whether a model's layers are set to recompute."""
    return any(getattr(module, "gradient_checkpointing", False) for module in model.modules())


def check_settings(trainer: Any, settings: MemorySettings) -> None:
    """Raise an error for a trainer with other settings than those of the prediction, or on several devices."""
    args = trainer.args
    if args.world_size > 1 or args.n_gpu > 1:
        raise UnsupportedError(
            "a calibration is of one device, and this trainer shares each batch among several",
            "set CUDA_VISIBLE_DEVICES=0 before starting Python, and do not use torchrun",
        )
    theirs = {**training_settings(args, trainer.model), "gradient_checkpointing": recomputes(args)}
    ours = {**vars(settings), "gradient_checkpointing": settings.gradient_checkpointing is not False}
    names = ("precision", "gradient_checkpointing", "optimizer", "accumulation")
    wrong = [f"{name} {theirs[name]!r} instead of {ours[name]!r}" for name in names if theirs[name] != ours[name]]
    if wrong:
        raise InvalidArgumentError(
            f"the trainer has {', '.join(wrong)}", "trace the memory model with the trainer's own settings"
        )


def given_optimizer(trainer: Any) -> Any:
    """The optimizer that the user gave, None where the Trainer makes its own."""
    return getattr(trainer.optimizer, "optimizer", trainer.optimizer)


def run_trainer(trainer: Any, made: dict[str, Any], samples: int, steps: int) -> None:
    """``trainer.train()`` for ``steps`` optimizer steps over copies of one batch; no logs, no checkpoints."""
    with kept(trainer), tempfile.TemporaryDirectory(prefix="asrconfig-") as folder:
        _prepare(trainer, made, samples, steps, folder)
        trainer.train()


@contextlib.contextmanager
def kept(trainer: Any) -> Iterator[None]:
    """Restores the trainer's own state and its model's, and frees what the training leaves behind."""
    before = dict(vars(trainer))
    patched = {name: vars(trainer.model)[name] for name in _FORWARD if name in vars(trainer.model)}
    checkpointing = checkpoints(trainer.model)
    cached = getattr(getattr(trainer.model, "config", None), "use_cache", None)
    try:
        with _scale_kept(getattr(trainer.accelerator, "scaler", None)):
            yield
    finally:
        trainer.accelerator.free_memory()
        vars(trainer).clear()
        vars(trainer).update(before)
        for name in _FORWARD:
            vars(trainer.model).pop(name, None)
        vars(trainer.model).update(patched)
        if not checkpointing and checkpoints(trainer.model):
            # The second name is that of transformers before 5.
            disable = getattr(trainer.model, "activation_checkpointing_disable", None)
            (disable or trainer.model.gradient_checkpointing_disable)()
        if cached is not None:
            trainer.model.config.use_cache = cached
        # Optimizer and schedule refer to each other: their memory would stay until the next garbage collection.
        free_memory()


@contextlib.contextmanager
def _scale_kept(scaler: Any) -> Iterator[None]:
    """Restores the scale of fp16's gradients, which steps change, and whether it is on the GPU yet."""
    if scaler is None:
        yield
        return
    # Dictionaries are changed in place.
    before = {name: copy.copy(value) if isinstance(value, dict) else value for name, value in vars(scaler).items()}
    values = [(value, value.clone()) for value in before.values() if isinstance(value, torch.Tensor)]
    try:
        yield
    finally:
        vars(scaler).clear()
        vars(scaler).update(before)
        for tensor, value in values:
            tensor.copy_(value)


def _prepare(trainer: Any, made: dict[str, Any], samples: int, steps: int, folder: str) -> None:
    args = trainer.args = copy.copy(trainer.args)
    changes = {
        "output_dir": folder, "max_steps": steps, "per_device_train_batch_size": samples, "num_train_epochs": 1.0,
        "save_strategy": "no", "eval_strategy": "no", "logging_strategy": "no", "load_best_model_at_end": False,
        "eval_on_start": False, "push_to_hub": False, "disable_tqdm": True, "skip_memory_metrics": True,
    }  # fmt: skip
    for name, value in changes.items():
        if hasattr(args, name):
            object.__setattr__(args, name, value)
    trainer._train_batch_size = samples
    trainer.model_init = None
    trainer.callback_handler = CallbackHandler([DefaultFlowCallback()], trainer.model, None, trainer.optimizer, None)
    rows = list(range(samples * args.gradient_accumulation_steps * steps))
    loader = DataLoader(rows, batch_size=samples, collate_fn=lambda _: {n: t.clone() for n, t in made.items()})
    trainer.get_train_dataloader = lambda: trainer.accelerator.prepare(loader)
