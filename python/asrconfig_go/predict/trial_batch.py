"""Forward and backward of one batch of any size, as a training runs them."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from .._core.checks import checked
from .._core.declared import Precision
from .._core.modules import checkpointing_method, checkpoints, task_classes
from .._core.padding import padded_for_masks
from .._core.settings import OPTIMIZER
from .._core.training_session import single_process
from ..errors import InvalidArgumentError
from ..trace.event_log import TraceError
from ..trace.made_up_batches import MadeUp
from ..trace.step_tracing import made_up_batches, trace_training
from .calibration import kept
from .memory_settings import positive
from .trainer_settings import recomputes, training_settings
from .worst_batch import longest, seconds_of, worst_batch

if TYPE_CHECKING:
    from torch import nn
    from transformers import PreTrainedTokenizerBase, Trainer


BatchFunction = Callable[[int], Mapping[str, Any]]
_LOSS_HINT = "the batch needs labels, and the model must return .loss, ['loss'] or the loss first"
_MOST_TOKENS = 1 << 20
_DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}


@dataclass(frozen=True)
class TrialBatch:
    """A trial: ``make`` returns inputs of a number of samples, ``step`` runs them forward and backward.

    ``passes`` is 2 when gradients are accumulated: the second micro-batch finds those of the first in memory.
    ``settings`` are those of the memory model, ``seconds`` the duration of the inputs where it is known.
    """

    model: nn.Module
    make: BatchFunction
    step: Callable[[Any], Any]
    passes: int
    settings: dict[str, Any]
    seconds: float | None
    inputs: str

    def run(self, size: int) -> None:
        """Leave the gradients of ``size`` samples behind."""
        inputs = padded_for_masks(self.make(size), self.model)  # as the guard's step begins
        for _ in range(self.passes):
            self.step(dict(inputs))


def model_trial(
    model: nn.Module,
    batch_fn: BatchFunction | None,
    seconds: float | None,
    max_length: int | None,
    precision: Precision,
    accumulation: int,
    optimizer: torch.optim.Optimizer | str | None,
) -> tuple[TrialBatch, Any]:
    """The trial of a model alone, and its optimizer: the given one, or one by the Trainer's name."""
    checked("precision", precision, Precision)
    positive("accumulation", accumulation, 65_536)
    name = optimizer or OPTIMIZER
    if isinstance(name, str):
        from ..trace.optimizers import build

        optimizer = build(name, model)
    if batch_fn is None or is_tokenizer(batch_fn):
        inputs = trial_inputs(model, batch_fn, seconds, max_length)
    else:
        inputs = TrialInputs(batch_fn, "the batches of batch_fn")
    settings: dict[str, Any] = {"precision": precision, "accumulation": accumulation}
    settings |= {"gradient_checkpointing": checkpoints(model)} | ({"optimizer": name} if isinstance(name, str) else {})
    step = _Step(model, _DTYPES.get(precision), inputs.loss or loss_of)
    return TrialBatch(model, inputs.make, step, min(accumulation, 2), settings, seconds, inputs.words), optimizer


class _Step:
    """Forward and backward of a plain model, on its device, in its precision."""

    def __init__(self, model: nn.Module, dtype: torch.dtype | None, loss: Callable[[Any], torch.Tensor]) -> None:
        self._model, self._dtype, self._loss = model, dtype, loss
        self._device = next(model.parameters()).device

    def __call__(self, inputs: dict[str, Any]) -> None:
        self._model.train()
        moved = {name: value.to(self._device) if hasattr(value, "to") else value for name, value in inputs.items()}
        mixed = self._dtype is not None
        with torch.autocast(self._device.type, self._dtype) if mixed else contextlib.nullcontext():
            loss = self._loss(self._model(**moved))
        loss.mean().backward()


def loss_of(output: object) -> torch.Tensor:
    """The loss of a model's output. Raises ``InvalidArgumentError`` when there is none with a gradient."""
    if isinstance(output, Mapping):
        loss = output.get("loss")
    elif isinstance(output, tuple | list):
        loss = output[0] if len(output) else None
    else:
        loss = getattr(output, "loss", output)
    if not isinstance(loss, torch.Tensor) or not loss.requires_grad:
        raise InvalidArgumentError("the model returns no loss with gradients for such a batch", _LOSS_HINT)
    return loss


@contextlib.contextmanager
def trainer_trial(
    trainer: Trainer,
    batch_fn: BatchFunction | None,
    seconds: float | None,
    batch: Mapping[str, Any] | None,
    optimizer: torch.optim.Optimizer | None,
) -> Iterator[tuple[TrialBatch, Any]]:
    """The trial of a trainer's own step, and its optimizer; the trainer is restored afterwards."""
    _check_trainer(trainer)
    model, args, settings = trainer.model, trainer.args, training_settings(trainer.args, trainer.model)
    with kept(trainer):
        make, inputs = batch_fn, "the batches of batch_fn"
        if make is None:
            base, inputs = worst_batch(trainer, args.train_batch_size, seconds, batch)
            seconds = seconds_of(base, model) if seconds is None else seconds
            make = functools.partial(longest, base, None)
        _prepare(trainer)
        optimizer = optimizer or trainer.optimizer or trainer.create_optimizer()
        # Not a guard's step, which would split what does not fit.
        step = functools.partial(type(trainer).training_step, trainer, trainer.model_wrapped)
        passes = min(args.gradient_accumulation_steps, 2)
        yield TrialBatch(model, make, step, passes, settings, seconds, inputs), optimizer


def _prepare(trainer: Trainer) -> None:
    """What ``train()`` does to the model before its first step: recomputation, and accelerate's mixed precision."""
    model, args = trainer.model, trainer.args
    enable = checkpointing_method(model, "enable")
    if enable is not None and recomputes(args) and not checkpoints(model):
        name = enable.__name__.replace("enable", "kwargs")
        enable(**{name: getattr(args, name, None)})
    if not hasattr(model, "_original_forward"):
        trainer.model_wrapped = trainer.accelerator.prepare_model(model)
    trainer.current_gradient_accumulation_steps = args.gradient_accumulation_steps


def _check_trainer(trainer: Trainer) -> None:
    for name in ("training_step", "accelerator", "create_optimizer"):
        if not hasattr(trainer, name):
            raise InvalidArgumentError(f"{type(trainer).__name__} has no {name}", "pass a transformers.Trainer")
    if not single_process(trainer) or trainer.args.n_gpu > 1:
        raise InvalidArgumentError(
            "several processes or GPUs would have to try the same sizes together",
            "search in one process with one GPU: the others have the same micro-batch",
        )


@dataclass(frozen=True)
class TrialInputs:
    """``make`` returns the inputs of a number of samples; ``loss`` is that of the model's outputs, None for its own."""

    make: Callable[[int], Mapping[str, Any]]
    words: str
    loss: Callable[[Any], torch.Tensor] | None = None


def is_tokenizer(thing: object) -> bool:
    """Whether this makes tokens of texts, rather than batches."""
    return callable(thing) and hasattr(thing, "convert_tokens_to_ids") and hasattr(thing, "model_input_names")


def trial_inputs(
    model: nn.Module, tokenizer: PreTrainedTokenizerBase | None, seconds: float | None, max_length: int | None
) -> TrialInputs:
    """Made-up inputs for ``model`` of the given length; the kind of labels is found by tracing a step."""
    if tokenizer is not None and max_length is None:
        raise InvalidArgumentError("how long the texts are is not known", "pass max_length=128, the most tokens")
    ways = list(made_up_batches(model))
    batches = ways[0].batches
    if max_length is not None:
        length = _tokens(max_length, batches.max_length, tokenizer)
        labels = batches.labels(length / batches.length_per_second)
        words = f"texts of {length} tokens"
    elif seconds is not None:
        length, labels, words = batches.length(seconds), batches.labels(seconds), "made-up batches"
    else:
        raise InvalidArgumentError(
            "without batch_fn the length of the inputs is not known",
            "pass seconds= of audio, max_length= of texts, or pass batch_fn(samples)",
        )
    way = _way(model, ways, length, labels)
    texts = {} if tokenizer is None else _tokenized(tokenizer, length)

    def make(samples: int) -> dict[str, Any]:
        repeated = {name: value.repeat(samples, 1) for name, value in texts.items()}
        return {**way.batches.batch(samples, length, labels), **repeated}

    return TrialInputs(make, words, way.loss)


def _way(model: nn.Module, ways: list[MadeUp], length: int, labels: int) -> MadeUp:
    """The kind with which a step can be traced: on the device a wrong label may end the process."""
    if len(ways) == 1 or _recognizes(model):
        return ways[0]
    try:
        about = trace_training(model, points=[(2, length, labels)], steps=1, evaluation=False).about
    except TraceError:
        return ways[0]
    return next((way for way in ways if way.words == about.get("batches", "")), ways[0])


def _recognizes(model: nn.Module) -> bool:
    """Whether the labels are those of a speech recognizer, as transformers lists them."""
    return any(type(model).__name__ in task_classes(task).values() for task in ("CTC", "SPEECH_SEQ_2_SEQ"))


def _tokens(max_length: int, positions: int | None, tokenizer: PreTrainedTokenizerBase | None) -> int:
    limit = min(positions or _MOST_TOKENS, getattr(tokenizer, "model_max_length", None) or _MOST_TOKENS)
    if positive("max_length", max_length, _MOST_TOKENS) > limit:
        raise InvalidArgumentError(
            f"max_length = {max_length} is more than the {limit} tokens that the model takes", f"pass at most {limit}"
        )
    return int(max_length)


def _tokenized(tokenizer: PreTrainedTokenizerBase, length: int) -> dict[str, torch.Tensor]:
    made = dict(tokenizer(["a " * length], truncation=True, max_length=length, return_tensors="pt"))
    if made["input_ids"].shape[1] != length:
        raise InvalidArgumentError(
            f"{type(tokenizer).__name__} makes no text of {length} tokens", "pass batch_fn(samples) instead"
        )
    return made
