"""What a model is tried with where no ``batch_fn`` is given: clips of a duration, or texts of a number of tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from .._base.errors import InvalidArgumentError
from ..trace import TraceError, trace_training
from ..trace.signature import MadeUp, made_up_batches
from .memory_settings import positive

_MOST_TOKENS = 1 << 20


@dataclass(frozen=True)
class TrialInputs:
    """``make`` returns the inputs of a number of samples; ``loss`` is that of the model's outputs, None for its own."""

    make: Callable[[int], Mapping[str, Any]]
    words: str
    loss: Callable[[Any], torch.Tensor] | None = None


def is_tokenizer(thing: Any) -> bool:
    """Whether this makes tokens of texts, rather than batches."""
    return callable(thing) and hasattr(thing, "convert_tokens_to_ids") and hasattr(thing, "model_input_names")


def trial_inputs(model: Any, tokenizer: Any, seconds: float | None, max_length: int | None) -> TrialInputs:
    """Inputs made up for ``model``, as long as asked, the kind of labels by what its step takes in a trace."""
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


def _way(model: Any, ways: list[MadeUp], length: int, labels: int) -> MadeUp:
    """That with which a step can be traced: nothing is tried on the device, where a wrong label may end the process."""
    if len(ways) == 1 or _recognizes(model):
        return ways[0]
    try:
        about = trace_training(model, points=[(2, length, labels)], steps=1, evaluation=False).about
    except TraceError:
        return ways[0]
    return next((way for way in ways if way.words == about.get("batches", "")), ways[0])


def _recognizes(model: Any) -> bool:
    """Whether the labels are those of a speech recognizer, as transformers lists them."""
    from transformers.models.auto import modeling_auto as auto

    names = (auto.MODEL_FOR_CTC_MAPPING_NAMES, auto.MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES)
    return any(type(model).__name__ in each.values() for each in names)


def _tokens(max_length: Any, positions: int | None, tokenizer: Any) -> int:
    most = min(positions or _MOST_TOKENS, getattr(tokenizer, "model_max_length", None) or _MOST_TOKENS)
    if positive("max_length", max_length, _MOST_TOKENS) > most:
        raise InvalidArgumentError(
            f"max_length = {max_length} is more than the {most} tokens that the model takes", f"pass at most {most}"
        )
    return int(max_length)


def _tokenized(tokenizer: Any, length: int) -> dict[str, torch.Tensor]:
    """A text of that many tokens, by the names that the tokenizer gives the model."""
    made = dict(tokenizer(["a " * length], truncation=True, max_length=length, return_tensors="pt"))
    if made["input_ids"].shape[1] != length:
        raise InvalidArgumentError(
            f"{type(tokenizer).__name__} makes no text of {length} tokens", "pass batch_fn(samples) instead"
        )
    return made
