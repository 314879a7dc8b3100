"""Made-up batches for modules that are not speech recognizers, from the signature of ``forward``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from .._core.batches import audio_name
from .._core.defaults import SAMPLING_RATE
from .._core.modules import bare
from ..errors import InvalidArgumentError
from .made_up_batches import TEXT, BatchFunction, SpeechBatches, known_batches, text_batches

GIVE = "pass processor=processor or collator=collator to create_optimal_config, or batch_fn(batch, length, labels)"
_DECODER = "decoder_input_ids"
LossFunction = Callable[[Any], torch.Tensor]  # of a model's outputs
LabelFunction = Callable[[int, int, int], torch.Tensor]  # of batch, length and labels


@dataclass(frozen=True)
class MadeUp:
    """One kind of batch for a module. ``words`` are the assumptions, "" for none; ``loss`` None: the model's own."""

    batches: SpeechBatches
    words: str = ""
    loss: LossFunction | None = None


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


def given_batches(model: nn.Module, batches: SpeechBatches) -> Iterator[MadeUp]:
    """The kinds to try with a collator's batches: with the model's loss, or without, where the Trainer has its own."""
    yield MadeUp(batches)
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
            f"a {type(bare(model)).__name__} takes {audio} and {TEXT}, which only its processor fits to each other",
            GIVE,
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
    """As transducers take a text: its labels after the token that decoding starts from."""
    make = batches.batch

    def batch(*point: int) -> dict[str, torch.Tensor]:
        made = make(*point)
        return {**made, _DECODER: torch.nn.functional.pad(made["labels"], (1, 0))}

    return replace(batches, batch=batch)


def _waveforms(name: str, *channels: int) -> BatchFunction:
    return lambda batch, length, labels: {name: torch.randn(batch, *channels, length)}


def _without_labels(make: BatchFunction) -> BatchFunction:
    return lambda *point: {name: tensor for name, tensor in make(*point).items() if name != "labels"}


def _joined(batches: SpeechBatches, target: str | None, labels: LabelFunction) -> SpeechBatches:
    make = batches.batch
    return replace(batches, batch=lambda *point: {**make(*point), str(target): labels(*point)})


def _labels(model: nn.Module, parameters: Iterable[str]) -> Iterator[tuple[str, LabelFunction]]:
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
