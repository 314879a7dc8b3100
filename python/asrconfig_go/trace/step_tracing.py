"""Trace the training that the Trainer will run, at a few shapes, so that all others can be computed.

For modules that are not speech recognizers the batches are made up from the signature of ``forward``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from .._core.batches import audio_name
from .._core.declared import Optimizer, Precision
from .._core.modules import add_lora, bare
from .._core.output import kind_of
from .._core.settings import OPTIMIZER, SAMPLING_RATE, Checkpointing
from ..errors import AsrConfigError, InvalidArgumentError
from ._arena import imaginary_copy
from .event_log import CheckpointError, NoLossError, RefusedBatchError, Trace, TraceError
from .made_up_batches import TEXT, BatchFunction, MadeUp, Point, SpeechBatches, known_batches, text_batches
from .recorder import MemoryRecorder
from .training_loop import TrainingLoop, checked_point

_GIVE = "pass processor=processor or collator=collator to create_optimal_config, or batch_fn(batch, length, labels)"
_DECODER = "decoder_input_ids"
_LabelFunction = Callable[[int, int, int], torch.Tensor]  # of batch, length and labels


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
) -> Trace:
    """Trace the Trainer's loop: first step, steady steps, other shapes, evaluation.

    Without ``points``, only three shapes are traced of a model that runs other operations at each of them, as no
    formula then covers all others.

    Args:
        model: The model, which stays as it is, or a function that builds one, which costs no memory at all.
        batch_fn: A function of ``(batch, length, labels)`` that returns the model's keyword arguments as tensors. None
            for batches by the model's config (``speech_batches``) or by the signature of its ``forward``; what was
            assumed is then a note of the trace.
        points: The shapes to trace, each (batch, input length, label length). Three different lengths with a batch of
            two or more, and two with a batch of one, let every other shape be computed. None for such shapes, where
            ``batch_fn`` is None or ``SpeechBatches``; any other function requires them.
        optimizer: The Trainer's name of an optimizer, or a function of parameter groups that returns one.
        precision: ``"fp32"``, or ``"fp16"`` or ``"bf16"`` for mixed precision.
        gradient_checkpointing: False, True (``"non_reentrant"``), ``"non_reentrant"`` or ``"reentrant"``.
        every_n_layers: Above 1, each n-th layer alone is recomputed, with transformers from 5.23 on.
        offload_checkpoints: Whether the inputs of recomputed layers stay in pinned host memory, with transformers from
            5.23 on.
        lora_rank: Above 0, adapters of this rank are trained (see ``add_lora``).
        accumulation: The micro-batches of an optimizer step.
        steps: The optimizer steps at the first of the points.
        loss: A function of ``(model, batch)`` that returns the loss; None for ``model(**batch).loss``.
        max_grad_norm: The norm to which gradients are clipped, as in TrainingArguments; 0 for no clipping.
        evaluation: Whether evaluation is traced, too. One that cannot be traced is left out, with a note.
        compute_capability: The compute capability of the GPU in mind.
        progress: A function of ``(done, all)``, called after each step; None for none.

    Returns:
        The trace, for ``MemoryModel.load`` or ``Trace.save``.

    Raises:
        InvalidArgumentError: A setting is out of its range, or there are no points.
        TraceError: The model cannot be traced; the message names the operation and the module.

    Example:
        >>> from asrconfig_go.recipe.model_building import small_model
        >>> trace = trace_training(small_model(tokens=12, seed=0))
    """
    refused: list[AsrConfigError] = []  # one for each kind of batches that was tried
    unseen = ""  # why no evaluation is traced
    settings = TrainingLoop(
        batch_fn, optimizer, precision, gradient_checkpointing, every_n_layers, offload_checkpoints,
        accumulation, steps, loss, max_grad_norm, evaluation, exact_shapes=points is not None,
    )  # fmt: skip
    if isinstance(batch_fn, SpeechBatches):
        points = [batch_fn.real(checked_point(point)) for point in points or batch_fn.points()]
        for point in points:  # before the recorder sees what a collator computes
            batch_fn(*point)
    while True:
        loop = replace(settings)  # with nothing of an earlier attempt
        with MemoryRecorder(compute_capability=compute_capability, about=loop.about()) as recorder:
            built = _built(model, lora_rank, recorder)
            if hasattr(model, "_orig_mod"):
                recorder.notes.append("torch.compile: the eager model was traced; a compiled one usually takes less")
            recorder.notes += [unseen] if unseen else []
            made_up = _next_to_try(built, batch_fn, refused)
            try:
                loop.run(recorder, built, points, progress, made_up)
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
        ways = list(_given_batches(model, batch_fn))
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
        f"no batches could be made up for {kind_of(model)}; tried {reasons}",
        _GIVE,
    )


def _lacks_loss(error: AsrConfigError) -> bool:
    """Whether a model has no loss of its own, or takes no labels: its Trainer has the loss."""
    cause = error.__cause__
    return isinstance(error, NoLossError) or (
        isinstance(cause, TypeError) and "unexpected keyword argument" in str(cause)
    )


def made_up_batches(model: nn.Module) -> Iterator[MadeUp]:
    """The kinds to try: a speech recognizer's where the config is that of one, labels of other heads, and no labels.

    Raises ``InvalidArgumentError`` for a module whose ``forward`` does not show its input.
    """
    parameters = _parameters(model)
    _check_prompt(model, parameters)
    recognizer = known_batches(model)
    if recognizer is not None:
        yield MadeUp(recognizer)
        if _DECODER in parameters:
            yield MadeUp(_with_start(recognizer), "a text of each clip, and the same after a start token")
    target = next((name for name in parameters if "label" in name), None)
    inputs = list(_inputs(model, recognizer, parameters, target))
    for kind, labels in _labels(model, parameters) if target else ():
        for shape, batches in inputs:
            yield MadeUp(_joined(batches, target, labels), f"{shape}, {target}: {kind}")
    for shape, batches in inputs:
        yield MadeUp(batches, f"{shape}, no labels; the mean of its outputs stands for a loss", mean_of)


def _given_batches(model: nn.Module, batches: SpeechBatches) -> Iterator[MadeUp]:
    """The kinds to try with a collator's batches: with the model's loss, or without, where the Trainer has its own.

    Those of a function of the user's are tried as they are.
    """
    yield MadeUp(batches)
    if not batches.pairs():
        return
    parameters, make = _parameters(model), batches.batch

    def unlabelled(*point: int) -> dict[str, torch.Tensor]:
        return {name: value for name, value in make(*point).items() if name in parameters and "label" not in name}

    words = "the collator's, without labels; the mean of the model's outputs stands for a loss"
    yield MadeUp(replace(batches, batch=unlabelled), words, mean_of)


def mean_of(outputs: object) -> torch.Tensor:
    """A loss that depends on every output of a model."""
    values = list(outputs.values()) if isinstance(outputs, Mapping) else outputs
    floats = [t for t in pytree.tree_leaves(values) if isinstance(t, torch.Tensor) and t.is_floating_point()]
    if not floats:
        raise InvalidArgumentError("the model returns no tensor of numbers", "pass loss=function(model, batch)")
    return sum((t.float().mean() for t in floats[1:]), floats[0].float().mean())


def _parameters(model: nn.Module) -> dict[str, inspect.Parameter]:
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {name: p for name, p in inspect.signature(bare(model).forward).parameters.items() if p.kind in by_name}


def _check_prompt(model: nn.Module, parameters: Iterable[str]) -> None:
    """Raise ``InvalidArgumentError`` for a model of audio and tokens that have to match: tokens alone take less."""
    audio = audio_name(parameters)
    if TEXT in parameters and audio is not None:
        raise InvalidArgumentError(
            f"{kind_of(bare(model))} takes {audio} and {TEXT}, which only its processor fits to each other",
            _GIVE,
        )


def _inputs(
    model: nn.Module, batches: SpeechBatches | None, parameters: dict[str, inspect.Parameter], target: str | None
) -> Iterator[tuple[str, SpeechBatches]]:
    """The input without labels: by its config, tokens, or waveforms for the one required argument."""
    if batches is not None:
        yield "input as its config says", replace(batches, batch=_without_labels(batches.batch))
        return
    if TEXT in parameters:
        yield f"{TEXT}: (batch, tokens)", text_batches(model, parameters)
        return
    names = [name for name in parameters if name != target]
    needed = [name for name in names if parameters[name].default is inspect.Parameter.empty]
    if not names or len(needed) > 1:
        arguments = ", ".join(needed) or "nothing by name"
        raise InvalidArgumentError(
            f"forward takes {arguments}; batches can be made up only for a single audio argument",
            "pass batch_fn(batch, length, labels) -> the model's keyword arguments as tensors",
        )
    name = (needed or names)[0]
    yield f"{name}: (batch, samples) at 16 kHz", SpeechBatches(_waveforms(name), SAMPLING_RATE)
    yield f"{name}: (batch, 1, samples) at 16 kHz", SpeechBatches(_waveforms(name, 1), SAMPLING_RATE)


def _with_start(batches: SpeechBatches) -> SpeechBatches:
    """Put the start token before the labels, as transducers take a text."""
    make = batches.batch

    def batch(*point: int) -> dict[str, torch.Tensor]:
        made = make(*point)
        return {**made, _DECODER: torch.nn.functional.pad(made["labels"], (1, 0))}

    return replace(batches, batch=batch)


def _waveforms(name: str, *channels: int) -> BatchFunction:
    return lambda batch, length, labels: {name: torch.randn(batch, *channels, length)}


def _without_labels(make: BatchFunction) -> BatchFunction:
    return lambda *point: {name: tensor for name, tensor in make(*point).items() if name != "labels"}


def _joined(batches: SpeechBatches, target: str | None, labels: _LabelFunction) -> SpeechBatches:
    make = batches.batch
    return replace(batches, batch=lambda *point: {**make(*point), str(target): labels(*point)})


def _labels(model: nn.Module, parameters: Iterable[str]) -> Iterator[tuple[str, _LabelFunction]]:
    """Labels of the usual heads: a class of each clip, of each frame, a text, a number of each clip."""
    classes = int(getattr(getattr(model, "config", None), "num_labels", None) or 2)
    row = "text" if TEXT in parameters else "clip"
    frames = getattr(model, "_get_feat_extract_output_lengths", None)  # of transformers' models of waveforms
    yield f"a class of each {row}", lambda batch, length, labels: torch.randint(0, classes, (batch,))
    if frames is not None:
        yield (
            "a class of each frame",
            lambda batch, length, labels: torch.zeros(batch, int(frames(torch.tensor(length))), classes),
        )
    if row == "text":
        yield "a token of each place", lambda batch, length, labels: torch.randint(0, classes, (batch, length))
    yield f"a text of each {row}", lambda batch, length, labels: torch.randint(0, classes, (batch, labels))
    yield f"a number of each {row}", lambda batch, length, labels: torch.zeros(batch)
