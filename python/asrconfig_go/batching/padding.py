"""Taking padding off, where that changes nothing, and adding it, where a model cannot train without.

A micro-batch of short clips, split from a batch with a long one, keeps the padding to the long one's length. Models
with attention masks and without norms over time compute the same without it, in less memory and time: the table of
losses says which. Norms over time (GroupNorm over the frames, as in wav2vec2-base; batch normalisation) see the
padding: there, it stays. A batch of clips that are all shorter than a mask of SpecAugment is padded as one with a
longer clip would be, as such models raise an error else.
"""

from __future__ import annotations

import bisect
import inspect
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from .._base.wrapped_model import bare
from .batch_lengths import extent, input_name, spoken_lengths, time_axis
from .collated_batch import entries, like

_MASKING = ("_mask_hidden_states", "_mask_input_features")  # the methods of transformers' models


class _Masking:
    """SpecAugment over time in one module, as its config has it at the moment."""

    def __init__(self, module: Any) -> None:
        self._module: Callable[[], Any] = weakref.ref(module)
        self._lengths: dict[int, int] = {}

    def frames(self) -> tuple[int, int]:
        """Those of a mask, and those that the masks of a clip cover at least; 0 where nothing is masked."""
        config = getattr(self._module(), "config", None)
        # Models read the switch so, as some configs do not have it.
        if not (getattr(config, "mask_time_prob", 0) and getattr(config, "apply_spec_augment", True)):
            return 0, 0
        frames = int(getattr(config, "mask_time_length", 0) or 0)
        return frames, frames * max(1, int(getattr(config, "mask_time_min_masks", 0) or 0))

    def length(self, frames: int) -> int:
        """The shortest input of which the module makes so many frames."""
        if frames not in self._lengths:
            self._lengths[frames] = self._shortest(frames)
        return self._lengths[frames]

    def _shortest(self, frames: int) -> int:
        module = self._module()
        frames_of = getattr(module, "_get_feat_extract_output_lengths", None)
        if not frames or frames_of is None or getattr(module, "main_input_name", "") == "input_features":
            return frames
        if "add_adapter" in inspect.signature(frames_of).parameters:  # which comes behind the masks
            frames_of = partial(frames_of, add_adapter=False)
        return bisect.bisect_left(range(1 << 20), frames, key=lambda length: int(frames_of(torch.tensor(length))))


_maskings: weakref.WeakKeyDictionary[Any, list[_Masking]] = weakref.WeakKeyDictionary()


def _masked(model: Any) -> list[_Masking]:
    if model not in _maskings:
        modules = bare(model).modules()
        _maskings[model] = [_Masking(module) for module in modules if any(hasattr(module, name) for name in _MASKING)]
    return _maskings[model]


def least_length(model: Any) -> int:
    """The length that a model's input needs at least in training: SpecAugment refuses inputs shorter than a mask."""
    return max((masking.length(masking.frames()[0]) for masking in _masked(model)), default=0)


def long_enough(inputs: Any, model: Any) -> Any:
    """The batch that ``model`` can train on: itself, or where all clips are shorter than a mask, a padded one.

    With an attention mask nothing of such clips is masked, and results do not depend on how far they are padded.
    Without one, masks may lie anywhere, as they do over a clip that is padded to a longer one's length: they are to
    cover half of the batch at most, and not a whole clip.
    """
    least = least_length(model)
    name = input_name(inputs) if least else None
    if name is None or extent(inputs).length >= least:
        return inputs
    if entries(inputs).get("attention_mask") is None:
        least = max(masking.length(2 * masking.frames()[1]) for masking in _masked(model))
    return _lengthened(inputs, name, least)


def _lengthened(inputs: Any, name: str, length: int) -> Any:
    """A batch whose input ends at ``length``, with what is as long; itself if ``layout`` does not understand it."""
    values, axis = dict(inputs), time_axis(inputs, name)
    for entry, place in (layout(inputs) or {}).items():
        if place == "input" and not entry.startswith("decoder_"):  # as long by chance
            value, along = inputs[entry], axis if entry == name else 1
            shape = list(value.shape)
            shape[along] = length - shape[along]
            values[entry] = torch.cat([value, value.new_full(shape, -100 if entry == "labels" else 0)], along)
    return like(inputs, values) if values[name] is not inputs[name] else inputs


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


def each_trimmed(batch: Any, clips: list[Any], model: Any) -> list[Any]:
    """The ``clips`` of a batch, each a batch of one, without the padding that ``model`` does not need for it alone."""
    whole, least = extent(batch).length, least_length(model)
    lengths = spoken_lengths(batch) or [whole] * len(clips)
    return [trimmed(clip, min(max(length, least), whole)) for clip, length in zip(clips, lengths, strict=True)]


def layout(inputs: Any) -> dict[str, str] | None:
    """What each entry with a length is as long as: ``"input"`` or ``"labels"``; None when unknown.

    Entries of one value for each sample, and what is not a tensor, have no length.
    """
    name = input_name(inputs)
    if name is None or "logits_to_keep" in inputs:  # labels then count from the end
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
