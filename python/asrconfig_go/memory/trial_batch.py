"""Forward and backward of one batch of any size, as a training runs them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from .._base.checks import checked
from .._base.choices import Precision
from .._base.defaults import OPTIMIZER
from .._base.errors import InvalidArgumentError
from .._base.parallel_training import single_process
from .._base.wrapped_model import checkpointing_depth, offloads_checkpoints
from ..batching.padding import long_enough
from .calibration_trainer import kept
from .memory_settings import positive
from .trial_inputs import TrialInputs, is_tokenizer, trial_inputs
from .worst_batch import longest, seconds_of, worst_batch

BatchFunction = Callable[[int], Mapping[str, Any]]
_LOSS_HINT = "the batch needs labels, and the model must give .loss, ['loss'] or the loss first"
_DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}


@dataclass(frozen=True)
class TrialBatch:
    """What is tried: ``make`` returns inputs of a number of samples, ``step`` runs them forward and backward.

    ``passes`` is 2 when gradients are accumulated: the second micro-batch finds those of the first in memory.
    ``settings`` are those of the memory model, ``seconds`` the duration of the inputs where it is known.
    """

    model: Any
    make: BatchFunction
    step: Callable[[Any], None]
    passes: int
    settings: dict[str, Any]
    seconds: float | None
    inputs: str

    def run(self, size: int) -> None:
        """Leave the gradients of ``size`` samples behind."""
        inputs = long_enough(self.make(size), self.model)  # as the guard's step begins
        for _ in range(self.passes):
            self.step(dict(inputs))


def model_trial(
    model: Any,
    batch_fn: BatchFunction | None,
    seconds: float | None,
    max_length: int | None,
    precision: Precision,
    accumulation: int,
    optimizer: Any,
) -> tuple[TrialBatch, Any]:
    """Of a model alone, and its optimizer: the given one, or made by the Trainer's name for it."""
    checked("precision", precision, Precision)
    positive("accumulation", accumulation, 65_536)
    name = optimizer or OPTIMIZER
    if isinstance(name, str):
        from ..trace._traced_optimizers import build

        optimizer = build(name, model)
    if batch_fn is None or is_tokenizer(batch_fn):
        inputs = trial_inputs(model, batch_fn, seconds, max_length)
    else:
        inputs = TrialInputs(batch_fn, "the batches of batch_fn")
    settings: dict[str, Any] = {"precision": precision, "accumulation": accumulation}
    settings |= {"gradient_checkpointing": _checkpoints(model)} | ({"optimizer": name} if isinstance(name, str) else {})
    step = _Step(model, _DTYPES.get(precision), inputs.loss or loss_of)
    return TrialBatch(model, inputs.make, step, min(accumulation, 2), settings, seconds, inputs.words), optimizer


def _depth(args: Any, model: Any) -> int:
    """Of how many layers one is recomputed: by the model where it is prepared, else by the Trainer's arguments."""
    prepared = checkpointing_depth(model)
    if prepared is not None:
        return prepared
    if not _recomputes(args):
        return 1
    return int(_checkpointing_kwargs(args).get("every_n_layers", 1))


def _offloads(args: Any, model: Any) -> bool:
    """Whether what is recomputed from lies in host memory, by the same."""
    if checkpointing_depth(model) is not None:
        return offloads_checkpoints(model)
    return _recomputes(args) and bool(_checkpointing_kwargs(args).get("offload"))


def _checkpointing_kwargs(args: Any) -> dict[str, Any]:
    kinds = ("gradient", "activation")  # the first is the name before transformers 5
    given = [getattr(args, f"{kind}_checkpointing_kwargs", None) or {} for kind in kinds]
    return {**given[0], **given[1]}


def _checkpoints(model: Any) -> bool:
    return any(getattr(module, "gradient_checkpointing", False) for module in model.modules())


class _Step:
    """Forward and backward of a plain model, on its device, in its precision."""

    def __init__(self, model: Any, dtype: Any, loss: Callable[[Any], Any]) -> None:
        self._model, self._dtype, self._loss = model, dtype, loss
        self._device = next(model.parameters()).device

    def __call__(self, inputs: dict[str, Any]) -> None:
        self._model.train()
        moved = {name: value.to(self._device) if hasattr(value, "to") else value for name, value in inputs.items()}
        mixed = self._dtype is not None
        with torch.autocast(self._device.type, self._dtype) if mixed else contextlib.nullcontext():
            loss = self._loss(self._model(**moved))
        loss.mean().backward()


def loss_of(output: Any) -> Any:
    """The loss of a model's output. Raises ``InvalidArgumentError`` when there is none with a gradient."""
    if isinstance(output, Mapping):
        loss = output.get("loss")
    elif isinstance(output, tuple | list):
        loss = output[0] if len(output) else None
    else:
        loss = getattr(output, "loss", output)
    if not isinstance(loss, torch.Tensor) or not loss.requires_grad:
        raise InvalidArgumentError("the model gives no loss with gradients for such a batch", _LOSS_HINT)
    return loss


def trainer_settings(trainer: Any) -> dict[str, Any]:
    """What a trainer trains with, as ``MemoryModel.trace`` takes it."""
    return training_settings(trainer.args, trainer.model)


def training_settings(args: Any, model: Any) -> dict[str, Any]:
    """``trainer_settings`` by a trainer's arguments and its model."""
    return {
        "precision": "bf16" if args.bf16 else "fp16" if args.fp16 else "fp32",
        "gradient_checkpointing": _recomputes(args) or _checkpoints(model),
        "every_n_layers": _depth(args, model),
        "offload_checkpoints": _offloads(args, model),
        "optimizer": str(getattr(args.optim, "value", args.optim)),
        "accumulation": args.gradient_accumulation_steps,
    }


@contextlib.contextmanager
def trainer_trial(
    trainer: Any, batch_fn: BatchFunction | None, seconds: float | None, batch: Any, optimizer: Any
) -> Iterator[tuple[TrialBatch, Any]]:
    """Of a trainer, and its optimizer: its own step, loss, precision and recomputation; it is put back afterwards."""
    _check_trainer(trainer)
    model, args, settings = trainer.model, trainer.args, trainer_settings(trainer)
    with kept(trainer):
        make, inputs = batch_fn, "the batches of batch_fn"
        if make is None:
            base, inputs = worst_batch(trainer, args.train_batch_size, seconds, batch)
            seconds = seconds_of(base, model) if seconds is None else seconds
            make = _repeated(base)
        _prepare(trainer)
        optimizer = optimizer or trainer.optimizer or trainer.create_optimizer()
        # Past a guard's: it would make smaller micro-batches of what does not fit.
        train_step, prepared = type(trainer).training_step, trainer.model_wrapped
        passes = min(args.gradient_accumulation_steps, 2)
        step = _trainer_step(trainer, train_step, prepared)
        yield TrialBatch(model, make, step, passes, settings, seconds, inputs), optimizer


def _repeated(base: Any) -> BatchFunction:
    return lambda size: longest(base, samples=size)


def _trainer_step(trainer: Any, train_step: Any, model: Any) -> Callable[[Any], None]:
    def step(inputs: Any) -> None:
        train_step(trainer, model, inputs)

    return step


def _recomputes(args: Any) -> bool:
    return bool(getattr(args, "activation_checkpointing", False) or getattr(args, "gradient_checkpointing", False))


def _prepare(trainer: Any) -> None:
    """What ``train()`` does to the model before its first step: recomputation, and accelerate's mixed precision."""
    model, args = trainer.model, trainer.args
    if _recomputes(args) and not _checkpoints(model):
        for kind in ("activation", "gradient"):  # the second is the name before transformers 5
            enable = getattr(model, f"{kind}_checkpointing_enable", None)
            if enable is not None:
                options = getattr(args, f"{kind}_checkpointing_kwargs", None)
                enable(**{f"{kind}_checkpointing_kwargs": options})
                break
    if not hasattr(model, "_original_forward"):
        trainer.model_wrapped = trainer.accelerator.prepare_model(model)
    trainer.current_gradient_accumulation_steps = args.gradient_accumulation_steps


def _check_trainer(trainer: Any) -> None:
    for name in ("training_step", "accelerator", "create_optimizer"):
        if not hasattr(trainer, name):
            raise InvalidArgumentError(f"{type(trainer).__name__} has no {name}", "pass a transformers.Trainer")
    if not single_process(trainer) or trainer.args.n_gpu > 1:
        raise InvalidArgumentError(
            "several processes or GPUs would have to try the same sizes together",
            "search in one process with one GPU: the others have the same micro-batch",
        )
