"""Calibration: two real steps of the largest planned batch on the GPU, compared with their prediction."""

from __future__ import annotations

import dataclasses
import datetime
import gc
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._base.allocator_settings import allocator_in_force
from .._base.errors import InfeasiblePlanError, InvalidArgumentError, UnsupportedError
from ..machine.hardware import HardwareProfile
from .calibration_record import Calibration, store_calibration, torch_version
from .estimate import MemoryEstimate
from .memory_model import MemoryModel
from .memory_settings import Shape, positive

BatchFunction = Callable[[int, int, int], dict[str, Any]]


def calibrate(
    trainer_or_step: Any,
    memory_model: MemoryModel,
    *,
    batch: int,
    seconds: float,
    labels: int | None = None,
    steps: int = 2,
    model: Any = None,
    optimizer: Any = None,
    batch_fn: BatchFunction | None = None,
) -> Calibration:
    """Run ``steps`` optimizer steps of the largest planned batch on this machine's GPU, and correct ``memory_model``.

    ``trainer_or_step`` is a ``transformers.Trainer``, which trains on made-up clips for this, or a function
    ``step(batch)`` that runs one whole optimizer step over a dictionary of tensors on the GPU; ``model`` and
    ``optimizer`` are then what it trains. ``batch_fn(batch, length, labels)`` makes the tensors for models whose input
    is not known here. Weights, buffers, the optimizer's state, random numbers and the trainer's own state are as before
    afterwards, and gradients are None.

    The measurement is kept for this model, GPU and torch version, and corrects later estimates of the same model.
    Raises ``UnsupportedError`` without a CUDA GPU and for a trainer on several devices, ``InvalidArgumentError`` when
    trainer and memory model differ in their settings, ``InfeasiblePlanError`` when the batch does not fit.
    """
    import torch

    shape = Shape(batch, seconds, labels)
    positive("steps", steps, 100)
    gpu = _gpu(torch, memory_model)
    job = _job(trainer_or_step, memory_model, model, optimizer)
    made = _batch(batch_fn, job.model, memory_model, shape)
    with _restored(torch, job):
        peak = _measure(torch, job, made, shape, steps)
    predicted = _predicted(memory_model, shape)
    calibration = Calibration(
        memory_model.name, gpu, torch_version(), datetime.datetime.now(tz=datetime.timezone.utc).date().isoformat(),
        batch, seconds, peak.reserved / predicted.peak_reserved, measured_allocated=peak.allocated,
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

    model: Any
    optimizer: Any
    run: Callable[[dict[str, Any], int, int], None]


@dataclass(frozen=True)
class _Peak:
    allocated: int
    reserved: int
    context: int | None


def _gpu(torch: Any, memory_model: MemoryModel) -> str:
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


def _job(trainer_or_step: Any, memory_model: MemoryModel, model: Any, optimizer: Any) -> _Job:
    if hasattr(trainer_or_step, "train") and hasattr(trainer_or_step, "args"):
        from .calibration_trainer import check_settings, given_optimizer, run_trainer

        trainer = trainer_or_step
        check_settings(trainer, memory_model.settings)
        return _Job(trainer.model, given_optimizer(trainer), lambda made, n, k: run_trainer(trainer, made, n, k))
    if not callable(trainer_or_step) or model is None or optimizer is None:
        raise InvalidArgumentError(
            f"cannot calibrate with a {type(trainer_or_step).__name__}, model {type(model).__name__} and "
            f"optimizer {type(optimizer).__name__}",
            "pass a transformers.Trainer, or a function step(batch) with model= and optimizer=",
        )

    def run(made: dict[str, Any], _samples: int, steps: int) -> None:
        device = next(model.parameters()).device
        for _ in range(steps):
            trainer_or_step({name: tensor.to(device) for name, tensor in made.items()})

    return _Job(model, optimizer, run)


def _batch(batch_fn: BatchFunction | None, model: Any, memory_model: MemoryModel, shape: Shape) -> dict[str, Any]:
    from ..trace import speech_batches

    make = speech_batches(model).batch if batch_fn is None else batch_fn
    labels = memory_model.labels(shape.seconds) if shape.labels is None else shape.labels
    return make(shape.batch, memory_model.length(shape.seconds), labels)


def _measure(torch: Any, job: _Job, made: dict[str, Any], shape: Shape, steps: int) -> _Peak:
    """The peaks of the run, without what was on the GPU before besides model and optimizer."""
    cuda = torch.cuda
    gc.collect()
    cuda.empty_cache()
    foreign = max(0, int(cuda.memory_allocated()) - _own_bytes(torch, job))
    cuda.reset_peak_memory_stats()
    try:
        job.run(made, shape.batch, steps)
        cuda.synchronize()
    except torch.OutOfMemoryError as error:
        raise InfeasiblePlanError(
            f"{shape.words()} ran out of GPU memory in its real steps", "calibrate with a smaller batch"
        ) from error.with_traceback(None)
    reserved = int(cuda.max_memory_reserved()) - foreign
    return _Peak(int(cuda.max_memory_allocated()) - foreign, reserved, _context(cuda))


def _own_bytes(torch: Any, job: _Job) -> int:
    """The GPU memory of model and optimizer; a storage that several tensors share counts once."""
    states = [] if job.optimizer is None else [v for s in job.optimizer.state.values() for v in s.values()]
    tensors = [*job.model.parameters(), *job.model.buffers(), *states]
    storages = [t.untyped_storage() for t in tensors if isinstance(t, torch.Tensor) and t.is_cuda]
    return sum({s.data_ptr(): int(s.nbytes()) for s in storages}.values())


def _context(cuda: Any) -> int | None:
    """What the driver reports for this process besides the allocator's memory; None where it does not."""
    name = cuda.get_device_name()
    gpus = [gpu for gpu in HardwareProfile.detect().gpus if gpu.name == name]
    counted = [p for gpu in gpus for p in gpu.processes if p.memory_bytes]
    own = [p for p in counted if p.pid == os.getpid()] or (counted if len(counted) == 1 else [])
    if len(own) != 1:
        return None
    context = int(own[0].memory_bytes or 0) - int(cuda.memory_reserved())
    return context if context > 0 else None


@contextmanager
def _restored(torch: Any, job: _Job) -> Iterator[None]:
    """Restores weights, buffers, optimizer state, modes and random numbers afterwards.

    The tensors are saved to a temporary file, as small machines lack the RAM for a copy of a large model.
    """
    from .._base.random_state import rng_state, set_rng_state
    from .._base.wrapped_model import changing_tensors

    modes = [(m, m.training) for m in job.model.modules()]
    random = rng_state()
    with tempfile.TemporaryDirectory(prefix="asrconfig-") as folder:
        path = Path(folder) / "before.pt"
        optimizer = None if job.optimizer is None else job.optimizer.state_dict()
        torch.save({"model": changing_tensors(job.model), "optimizer": optimizer}, path)
        del optimizer
        try:
            yield
        finally:
            saved = torch.load(path, map_location="cpu", mmap=True, weights_only=True)
            tensors = dict([*job.model.named_parameters(), *job.model.named_buffers()])
            with torch.no_grad():
                for name, value in saved["model"].items():
                    tensors[name].copy_(value)
            if job.optimizer is not None:
                job.optimizer.state.clear()
                job.optimizer.load_state_dict(saved["optimizer"])
            del saved
            for module, training in modes:
                module.training = training
            for parameter in job.model.parameters():
                parameter.grad = None
            set_rng_state(random)
            torch.cuda.empty_cache()
