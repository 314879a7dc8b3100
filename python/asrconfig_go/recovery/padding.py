"""Taking padding off, where that changes nothing.

A micro-batch of short clips, split from a batch with a long one, keeps the padding to the long one's length. Models
with attention masks and without norms over time compute the same without it, in less memory and time: the table of
losses says which. Norms over time (GroupNorm over the frames, as in wav2vec2-base; batch normalisation) see the
padding: there, it stays.
"""

from __future__ import annotations

import bisect
import weakref
from typing import Any

import torch

from .._base.wrapped_model import bare
from ..batching.batch_lengths import extent, input_name, spoken_lengths, time_axis
from ..batching.collated_batch import like

_least: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()


def least_length(model: Any) -> int:
    """The length that a model's input needs at least in training: SpecAugment refuses inputs shorter than a mask."""
    if model not in _least:
        _least[model] = _mask_length(bare(model))
    return _least[model]


def _mask_length(model: Any) -> int:
    config = model.config
    frames = int(getattr(config, "mask_time_length", 0) or 0)
    if not (frames and getattr(config, "apply_spec_augment", False) and getattr(config, "mask_time_prob", 0)):
        return 0
    frames_of = getattr(model, "_get_feat_extract_output_lengths", None)
    if frames_of is None or getattr(model, "main_input_name", "") == "input_features":
        return frames
    return bisect.bisect_left(range(1 << 20), frames, key=lambda length: int(frames_of(torch.tensor(length))))


def trimmed(inputs: Any, length: int) -> Any:
    """A batch without the input behind ``length``, and without columns of labels that all its samples ignore.

    Entries that are as long as the input (masks, labels of causal models) end with it, those of the decoder with the
    labels. Everything is contiguous, as models take ``labels.view(-1)``. A batch whose input is not known stays as it
    is, and so does one that ``layout`` does not understand.
    """
    places = layout(inputs)
    if places is None:
        return inputs
    labels = inputs.get("labels")
    if places.get("labels") == "input" and _used(labels) > length:
        return inputs  # as long as the input by chance: these are labels of something else
    stop = {"input": length, "labels": _used(labels) if "labels" in places.values() else 0}
    axis = time_axis(inputs, str(input_name(inputs)))
    values = dict(inputs)
    for name, place in places.items():
        along = axis if name == input_name(inputs) else 1
        values[name] = inputs[name].narrow(along, 0, stop[place]).contiguous()
    return like(inputs, values)


def each_trimmed(batch: Any, clips: list[Any]) -> list[Any]:
    """The ``clips`` of a batch, each a batch of one, without the padding to the longest clip and text of ``batch``."""
    lengths = spoken_lengths(batch) or [extent(batch).length] * len(clips)
    return [trimmed(clip, length) for clip, length in zip(clips, lengths, strict=True)]


def layout(inputs: Any) -> dict[str, str] | None:
    """What each entry with a length is as long as: ``"input"`` or ``"labels"``; None when unknown.

    Entries of one value for each sample, and what is not a tensor, have no length.
    """
    name = input_name(inputs)
    if name is None:
        return None
    full, labels = inputs[name].shape[time_axis(inputs, name)], inputs.get("labels")
    text = labels.shape[1] if hasattr(labels, "shape") and len(labels.shape) == 2 else None
    places = {name: "input"}
    for each, value in inputs.items():
        shape: Any = getattr(value, "shape", ())
        if each == name or len(shape) < 2:
            continue
        if shape[1] == full:
            places[each] = "input"
        elif shape[1] == text and (each == "labels" or each.startswith("decoder_")):
            places[each] = "labels"
        elif each != "labels":
            return None  # frames of another rate, positions in the whole batch, or the like
    return places


def _used(labels: Any) -> int:
    """Columns of labels behind which all are ignored, at least 1."""
    used = (labels != -100).flatten(2).any(-1).any(0) if len(labels.shape) > 2 else (labels != -100).any(0)
    return int(used.nonzero().max()) + 1 if bool(used.any()) else 1
