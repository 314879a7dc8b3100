"""Transcripts that a model generates, as token ids behind its prompt."""

from __future__ import annotations

import warnings
from typing import Any

from .._base.speech_kinds import ends_with_frames, speech_kind
from .._base.wrapped_model import bare
from ..data.label_limits import IGNORED

_FRAMES = ("_get_feat_extract_output_lengths", "_get_subsampling_output_length")


def generates(model: Any) -> bool:
    """Whether transcripts come from ``generate``, and not from the logits of a forward pass."""
    return speech_kind(bare(model).config) != "ctc"


def generated(model: Any, inputs: dict[str, Any], limit: int | None) -> Any:
    """The tokens behind the prompts of ``inputs``, at most ``limit`` (None: the model's own limit).

    Transducers stop with the clip, and take no limit.
    """
    prompt = next((inputs[name] for name in ("input_ids", "decoder_input_ids") if name in inputs), None)
    start = 0 if prompt is None else prompt.shape[1]
    limits = {} if limit is None or ends_with_frames(bare(model).config) else {"max_length": start + limit}
    with warnings.catch_warnings():
        # A transducer's own limit is of its frames; transformers recommends another all the same.
        warnings.filterwarnings("ignore", message="Using the model-agnostic default `max_length`")
        output = model.generate(**inputs, **limits)
    if getattr(output, "durations", None) is not None:
        return _within_clips(model, inputs, output)
    return getattr(output, "sequences", output)[:, start:]


def _within_clips(model: Any, inputs: dict[str, Any], output: Any) -> Any:
    """Drop a transducer's tokens behind the end of each clip: a batch runs until its longest clip ends."""
    tokens, starts = output.sequences, output.durations.cumsum(dim=1) - output.durations
    frames = frames_of(bare(model), inputs)
    if frames is not None:
        tokens[starts >= frames[:, None]] = IGNORED
    return tokens


def frames_of(model: Any, inputs: dict[str, Any]) -> Any:
    """How many frames the model makes of each clip, by its own function; None without a mask or such a function."""
    mask, name = inputs.get("attention_mask"), next((name for name in _FRAMES if hasattr(model, name)), None)
    return None if mask is None or name is None else getattr(model, name)(mask.sum(dim=-1))
