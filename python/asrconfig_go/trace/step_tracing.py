"""Trace the training that the Trainer will run, at a few shapes, so that all others can be computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from .._core.checks import Checkpointing
from .._core.declared import Optimizer, Precision
from .._core.defaults import OPTIMIZER
from .._core.modules import add_lora
from ..errors import AsrConfigError
from ._arena import imaginary_copy
from .event_log import CheckpointError, NoLossError, RefusedBatchError, Trace, TraceError
from .made_up_batches import BatchFunction, Point, SpeechBatches
from .recorder import MemoryRecorder
from .signature import GIVE, MadeUp, given_batches, made_up_batches
from .training_loop import TrainingLoop, checked_point

_SHAPES = 4  # to trace, from which on a shortened model is recorded first


def trace_training(
    model: nn.Module | Callable[[], nn.Module],
    batch_fn: BatchFunction | None = None,
    *,
    points: Sequence[Point] | None = None,
    optimizer: Optimizer | Callable[[Any], torch.optim.Optimizer] = OPTIMIZER,
    precision: Precision = "fp32",
    gradient_checkpointing: bool | Checkpointing = False,
    every_n_layers: int = 1,
    offload_checkpoints: bool = False,
    lora_rank: int = 0,
    accumulation: int = 1,
    steps: int = 2,
    loss: Callable[[nn.Module, dict[str, torch.Tensor]], torch.Tensor] | None = None,
    max_grad_norm: float = 1.0,
    evaluation: bool = True,
    compute_capability: tuple[int, int] = (8, 0),
    progress: Callable[[int, int], None] | None = None,
    covering: bool | None = None,
) -> Trace:
    """One trace of the Trainer's loop over ``model``: first step, steady steps, other shapes, evaluation.

    ``model`` is left as it is; a function that builds one costs no memory at all. ``batch_fn(batch, length, labels)``
    returns the model's keyword arguments as tensors; without it they follow from the model's config
    (``speech_batches``), or from the signature of its ``forward``: what was assumed is then a note of the trace.
    ``points`` are the shapes to trace, each (batch, input length, label length); three different lengths with a batch
    of two or more, and two with a batch of one, let every other shape be computed. ``steps`` windows run at the first
    of them. ``gradient_checkpointing`` is False, True ("non_reentrant"), "non_reentrant" or "reentrant";
    ``every_n_layers`` above 1 recomputes each n-th layer alone, ``offload_checkpoints`` keeps the inputs of recomputed
    layers in pinned host memory, both with transformers from 5.23 on. ``lora_rank`` above 0 trains adapters (see
    ``add_lora``). ``loss(model, batch)`` replaces
    ``model(**batch).loss``. ``progress(done, all)`` is called after each window. ``covering`` says that ``points``
    stand for all other shapes, as those do that are traced without ``points``: where the model does other operations at
    each of the first three, no formula covers them, and no more are traced.

    Raises ``InvalidArgumentError`` for a setting out of range, ``TraceError`` for a model that cannot be traced.

    >>> from asrconfig_go.recipe.model_building import small_model
    >>> trace = trace_training(small_model(tokens=12, seed=0))
    """
    refused: list[AsrConfigError] = []  # one for each kind of batches that was tried
    unseen = ""  # why no evaluation is traced
    exact_shapes = points is not None if covering is None else not covering
    settings = TrainingLoop(
        batch_fn, optimizer, precision, gradient_checkpointing, every_n_layers, offload_checkpoints,
        accumulation, steps, loss, max_grad_norm, evaluation, exact_shapes,
    )  # fmt: skip
    if isinstance(batch_fn, SpeechBatches):
        points = [batch_fn.real(checked_point(point)) for point in points or batch_fn.points()]
        for point in points:  # before the recorder sees what a collator computes
            batch_fn(*point)
    shortens = every_n_layers == 1 and (points is None or len(points) >= _SHAPES)
    while True:
        short, trial = None, replace(settings, exact_shapes=False)
        # Whatever fails here, the whole model is recorded without it, and raises the error if it fails there, too.
        with suppress(Exception), MemoryRecorder(compute_capability=compute_capability) as recorder:
            if shortens:
                built = _built(model, lora_rank, recorder)
                short = trial.run_shortened(recorder, built, points, _next_to_try(built, batch_fn, refused))
        loop = replace(settings, formulas=not trial.by_shape)
        with MemoryRecorder(compute_capability=compute_capability, about=loop.about()) as recorder:
            built = _built(model, lora_rank, recorder)
            if hasattr(model, "_orig_mod"):
                recorder.notes.append("torch.compile: the eager model was traced; a compiled one usually takes less")
            recorder.notes += [unseen] if unseen else []
            made_up = _next_to_try(built, batch_fn, refused)
            try:
                loop.run(recorder, built, points, progress, made_up, short)
                return recorder.trace()
            except (TraceError, NoLossError) as error:
                if loop.evaluates:  # a training is planned without it, as where lengths are predicted
                    settings = replace(settings, evaluation=False)
                    unseen = f"its evaluation is not traced: {error.message}"
                    continue
                if made_up is None or isinstance(error, CheckpointError):  # for which no other batch helps
                    raise
                refused.append(error)


def _built(model: nn.Module | Callable[[], nn.Module], lora_rank: int, recorder: MemoryRecorder) -> nn.Module:
    """The model to train, without memory."""
    built = imaginary_copy(model, recorder.arena) if isinstance(model, nn.Module) else model()
    return add_lora(built, lora_rank) if lora_rank else built


def _next_to_try(model: nn.Module, batch_fn: BatchFunction | None, refused: list[AsrConfigError]) -> MadeUp | None:
    """The next kind of batches to try; raises what was tried after the last. None where ``batch_fn`` makes all."""
    if isinstance(batch_fn, SpeechBatches):
        ways = list(given_batches(model, batch_fn))
        if refused and not _lacks_loss(refused[0]):
            raise refused[0]
    elif batch_fn is None:
        ways = list(made_up_batches(model))
    else:
        return None
    if len(refused) < len(ways):
        return ways[len(refused)]
    if isinstance(batch_fn, SpeechBatches):
        raise refused[0]
    if not ways[0].words and not isinstance(refused[0], RefusedBatchError | NoLossError):
        raise refused[0]  # a recognizer whose batch is right, and an operation that cannot be traced
    tried: dict[str, list[str]] = {}
    for way, error in zip(ways, refused, strict=True):
        tried.setdefault(error.message, []).append(way.words or "a text of each clip")
    reasons = "; ".join(f"{', '.join(kinds)}: {reason}" for reason, kinds in tried.items())
    raise TraceError(
        f"no batches could be made up for a {type(model).__name__}; tried {reasons}",
        GIVE,
    )


def _lacks_loss(error: AsrConfigError) -> bool:
    """Whether a model has no loss of its own, or takes no labels: its Trainer has the loss."""
    cause = error.__cause__
    return isinstance(error, NoLossError) or (
        isinstance(cause, TypeError) and "unexpected keyword argument" in str(cause)
    )
