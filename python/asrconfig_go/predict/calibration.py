"""Calibration: real steps of the largest planned batch on the GPU, compared with their prediction."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader
from transformers.trainer_callback import CallbackHandler, DefaultFlowCallback

from .._core.modules import changing_tensors, checkpoints, installed_version, switch_off_checkpointing
from .._core.out_of_memory import free_memory
from .._core.output import kind_of
from .._core.random_state import rng_state, set_rng_state
from ..errors import InfeasiblePlanError, InvalidArgumentError, UnsupportedError
from .estimate import MemoryEstimate
from .hardware import HardwareProfile
from .memory_model import MemoryModel
from .memory_settings import (
    Calibration,
    MemorySettings,
    Shape,
    allocator_in_force,
    positive,
    store_calibration,
    utc_day,
)
from .probe import modes_kept
from .trainer_settings import recomputes, training_settings

if TYPE_CHECKING:
    from torch import nn
    from transformers import Trainer

    from ..trace.made_up_batches import BatchFunction


def calibrate(
    trainer_or_step: Trainer | Callable[[dict[str, Any]], object],
    memory_model: MemoryModel,
    *,
    batch: int,
    seconds: float,
    labels: int | None = None,
    steps: int = 2,
    model: nn.Module | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    batch_fn: BatchFunction | None = None,
) -> Calibration:
    """Run real steps of the largest planned batch on this machine's GPU, and correct a memory model by their peak.

    Weights, buffers, the optimizer's state, random numbers and the trainer's own state are as before afterwards, and
    gradients are None. The measurement is stored for this model, GPU and torch version, and corrects later estimates of
    the same model.

    Args:
        trainer_or_step: A ``transformers.Trainer``, which trains on made-up clips for this, or a function
            ``step(batch)`` that runs one whole optimizer step over a dictionary of tensors on the GPU.
        memory_model: The memory model to correct, traced with the trainer's settings.
        batch: The clips of the micro-batch, at least 1.
        seconds: The seconds of its longest clip, above 0.
        labels: The tokens of its longest text; None for the usual number of that duration.
        steps: The optimizer steps to run, 1 to 100.
        model: The model that a function trains; None with a trainer.
        optimizer: The optimizer that a function steps; None with a trainer.
        batch_fn: A function of ``(batch, length, labels)`` that returns the tensors, for a model whose input is not
            known here; None where it follows from the model.

    Returns:
        The measurement.

    Raises:
        UnsupportedError: There is no CUDA GPU, or the trainer uses several devices.
        InvalidArgumentError: A value is out of its range, trainer and memory model differ in their settings, the memory
            model is for another GPU, or a function has no model or optimizer.
        InfeasiblePlanError: The batch does not fit.
    """
    shape = Shape(batch, seconds, labels)
    positive("steps", steps, 100)
    gpu = _gpu(memory_model)
    job = _job(trainer_or_step, memory_model, model, optimizer)
    made = _batch(batch_fn, job.model, memory_model, shape)
    with _restored(job):
        peak = _measure(job, made, shape, steps)
    predicted = _predicted(memory_model, shape)
    calibration = Calibration(
        memory_model.name, gpu, installed_version("torch"), utc_day(), batch, seconds,
        peak.reserved / predicted.peak_reserved, measured_allocated=peak.allocated,
        measured_reserved=peak.reserved, predicted_allocated=predicted.peak_allocated,
        predicted_reserved=predicted.peak_reserved, context_bytes=peak.context,
    )  # fmt: skip
    if memory_model.model_key is not None:
        store_calibration(memory_model.model_key, calibration)
    memory_model.apply(calibration)
    return calibration


def _predicted(memory_model: MemoryModel, shape: Shape) -> MemoryEstimate:
    """The prediction without an earlier calibration, for the allocator settings that the steps ran with."""
    before = memory_model.calibration, memory_model.settings
    memory_model.calibration = None
    memory_model.settings = dataclasses.replace(memory_model.settings, allocator=allocator_in_force())
    try:
        return memory_model.estimate(shape.batch, shape.seconds, shape.labels, timeline=0)
    finally:
        memory_model.calibration, memory_model.settings = before


@dataclass(frozen=True)
class _Job:
    """``run(batch, samples, steps)`` trains on copies of one batch."""

    model: nn.Module
    optimizer: torch.optim.Optimizer | None
    run: Callable[[dict[str, Any], int, int], None]


@dataclass(frozen=True)
class _Peak:
    allocated: int
    reserved: int
    context: int | None


def _gpu(memory_model: MemoryModel) -> str:
    if not torch.cuda.is_available():
        raise UnsupportedError(
            "calibration requires a CUDA GPU, and torch finds none",
            "estimates work without it; calibrate on the machine that trains",
        )
    name = str(torch.cuda.get_device_name())
    if memory_model.target.name not in ("", name):
        raise InvalidArgumentError(
            f"the memory model is for {memory_model.target.name}, this GPU is {name}", "trace it without gpu="
        )
    return name


def _job(
    trainer_or_step: Trainer | Callable[[dict[str, Any]], object],
    memory_model: MemoryModel,
    model: nn.Module | None,
    optimizer: torch.optim.Optimizer | None,
) -> _Job:
    if hasattr(trainer_or_step, "train") and hasattr(trainer_or_step, "args"):
        trainer: Trainer = trainer_or_step
        check_settings(trainer, memory_model.settings)
        # The user's optimizer; without one the Trainer makes its own.
        given = getattr(trainer.optimizer, "optimizer", trainer.optimizer)
        return _Job(trainer.model, given, functools.partial(_train, trainer))
    if not callable(trainer_or_step) or model is None or optimizer is None:
        raise InvalidArgumentError(
            f"cannot calibrate with {kind_of(trainer_or_step)}, model {type(model).__name__} and "
            f"optimizer {type(optimizer).__name__}",
            "pass a transformers.Trainer, or a function step(batch) with model= and optimizer=",
        )

    def run(made: dict[str, Any], _samples: int, steps: int) -> None:
        device = next(model.parameters()).device
        for _ in range(steps):
            trainer_or_step({name: tensor.to(device) for name, tensor in made.items()})

    return _Job(model, optimizer, run)


def _batch(batch_fn: BatchFunction | None, model: nn.Module, memory_model: MemoryModel, shape: Shape) -> dict[str, Any]:
    from ..trace.made_up_batches import speech_batches

    make = speech_batches(model).batch if batch_fn is None else batch_fn
    labels = memory_model.labels(shape.seconds) if shape.labels is None else shape.labels
    return make(shape.batch, memory_model.length(shape.seconds), labels)


def _measure(job: _Job, made: dict[str, Any], shape: Shape, steps: int) -> _Peak:
    """The peaks of the run, without what was on the GPU before besides model and optimizer."""
    cuda = torch.cuda
    free_memory()
    foreign = max(0, int(cuda.memory_allocated()) - _own_bytes(job))
    cuda.reset_peak_memory_stats()
    try:
        job.run(made, shape.batch, steps)
        cuda.synchronize()
    except torch.OutOfMemoryError as error:
        raise InfeasiblePlanError(
            f"{shape.words()} ran out of GPU memory in its real steps", "calibrate with a smaller batch"
        ) from error.with_traceback(None)
    reserved = int(cuda.max_memory_reserved()) - foreign
    return _Peak(int(cuda.max_memory_allocated()) - foreign, reserved, _context())


def _own_bytes(job: _Job) -> int:
    """The GPU memory of model and optimizer; a storage that several tensors share counts once."""
    states = [] if job.optimizer is None else [v for s in job.optimizer.state.values() for v in s.values()]
    tensors = [*job.model.parameters(), *job.model.buffers(), *states]
    storages = [t.untyped_storage() for t in tensors if isinstance(t, torch.Tensor) and t.is_cuda]
    return sum({s.data_ptr(): int(s.nbytes()) for s in storages}.values())


def _context() -> int | None:
    """What the driver reports for this process besides the allocator's memory; None where it does not."""
    cuda = torch.cuda
    name = cuda.get_device_name()
    gpus = [gpu for gpu in HardwareProfile.detect().gpus if gpu.name == name]
    counted = [p for gpu in gpus for p in gpu.processes if p.memory_bytes]
    own = [p for p in counted if p.pid == os.getpid()] or (counted if len(counted) == 1 else [])
    if len(own) != 1:
        return None
    context = int(own[0].memory_bytes or 0) - int(cuda.memory_reserved())
    return context if context > 0 else None


@contextlib.contextmanager
def _restored(job: _Job) -> Iterator[None]:
    """Restores weights, buffers, optimizer state, modes and random numbers afterwards.

    The tensors are saved to a temporary file, as small machines lack the RAM for a copy of a large model.
    """
    with tempfile.TemporaryDirectory(prefix="asrconfig-") as folder, contextlib.ExitStack() as back:
        path = Path(folder) / "before.pt"
        optimizer = None if job.optimizer is None else job.optimizer.state_dict()
        torch.save({"model": changing_tensors(job.model), "optimizer": optimizer}, path)
        del optimizer
        back.callback(torch.cuda.empty_cache)
        back.callback(set_rng_state, rng_state())
        back.callback(job.model.zero_grad)
        back.enter_context(modes_kept(job.model))
        back.callback(_put_tensors, job, path)
        yield


def _put_tensors(job: _Job, path: Path) -> None:
    saved = torch.load(path, map_location="cpu", mmap=True, weights_only=True)
    tensors = dict([*job.model.named_parameters(), *job.model.named_buffers()])
    with torch.no_grad():
        for name, value in saved["model"].items():
            tensors[name].copy_(value)
    if job.optimizer is not None:
        job.optimizer.state.clear()
        job.optimizer.load_state_dict(saved["optimizer"])


_FORWARD = ("forward", "_original_forward")


def check_settings(trainer: Trainer, settings: MemorySettings) -> None:
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


def _train(trainer: Trainer, made: dict[str, Any], samples: int, steps: int) -> None:
    """``trainer.train()`` for ``steps`` optimizer steps over copies of one batch; no logs, no checkpoints."""
    with kept(trainer), tempfile.TemporaryDirectory(prefix="asrconfig-") as folder:
        _prepare(trainer, made, samples, steps, folder)
        trainer.train()


@contextlib.contextmanager
def kept(trainer: Trainer) -> Iterator[None]:
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
        if not checkpointing:
            switch_off_checkpointing(trainer.model)
        if cached is not None:
            trainer.model.config.use_cache = cached
        # Optimizer and schedule refer to each other: their memory would stay until the next garbage collection.
        free_memory()


@contextlib.contextmanager
def _scale_kept(scaler: torch.amp.GradScaler | None) -> Iterator[None]:
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


def _prepare(trainer: Trainer, made: dict[str, Any], samples: int, steps: int, folder: str) -> None:
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
