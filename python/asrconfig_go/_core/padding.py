"""Removes padding where that changes nothing, and adds it where a model cannot train without.

A micro-batch of short clips, split from a batch with a long one, keeps the padding to the long one's length. Models
with attention masks and without norms over time compute the same without it, in less memory and time: the table of
losses lists them. Norms over time (GroupNorm over the frames, as in wav2vec2-base; batch normalisation) see the
padding: there, it stays. A batch of clips that are all shorter than a mask of SpecAugment is padded as if it had a
longer clip, as such models raise an error otherwise.
"""

from __future__ import annotations

import bisect
import inspect
import weakref
from collections.abc import Callable
from functools import partial

import torch

from .batches import B, entries, extent, input_name, like, spoken_lengths, time_axis
from .modules import bare

_MASKING = ("_mask_hidden_states", "_mask_input_features")  # the methods of transformers' models


class _Masking:
    """SpecAugment over time in one module, by the current values of its config."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._module: Callable[[], torch.nn.Module | None] = weakref.ref(module)
        self._lengths: dict[int, int] = {}

    def frames(self) -> tuple[int, int]:
        """The frames of a mask, and the fewest that the masks of a clip cover; 0 where nothing is masked."""
        config = getattr(self._module(), "config", None)
        if not (getattr(config, "mask_time_prob", 0) and getattr(config, "apply_spec_augment", True)):
            return 0, 0
        frames = int(getattr(config, "mask_time_length", 0) or 0)
        return frames, frames * max(1, int(getattr(config, "mask_time_min_masks", 0) or 0))

    def length(self, frames: int) -> int:
        """The shortest input from which the module makes ``frames`` frames."""
        module = self._module()
        frames_of = getattr(module, "_get_feat_extract_output_lengths", None)
        if not frames or frames_of is None or getattr(module, "main_input_name", "") == "input_features":
            return frames
        if frames not in self._lengths:
            if "add_adapter" in inspect.signature(frames_of).parameters:  # which comes after the masks
                frames_of = partial(frames_of, add_adapter=False)
            lengths = range(1 << 20)
            self._lengths[frames] = bisect.bisect_left(lengths, frames, key=lambda n: int(frames_of(torch.tensor(n))))
        return self._lengths[frames]


_maskings: weakref.WeakKeyDictionary[torch.nn.Module, list[_Masking]] = weakref.WeakKeyDictionary()


def _masked(model: torch.nn.Module) -> list[_Masking]:
    if model not in _maskings:
        modules = bare(model).modules()
        _maskings[model] = [_Masking(module) for module in modules if any(hasattr(module, name) for name in _MASKING)]
    return _maskings[model]


def least_length(model: torch.nn.Module) -> int:
    """The shortest input that a model can train on: SpecAugment raises an error for inputs shorter than a mask."""
    return max((masking.length(masking.frames()[0]) for masking in _masked(model)), default=0)


def long_enough(inputs: B, model: torch.nn.Module) -> B:
    """A batch that ``model`` can train on: the batch itself, padded where all clips are shorter than a mask.

    With an attention mask nothing of such clips is masked, and results do not depend on the padding. Without one, masks
    may lie anywhere, as over any padded clip: the padding is such that they cover at most half of the batch.
    """
    shortest = least_length(model)
    name = input_name(inputs) if shortest else None
    if name is None or extent(inputs).length >= shortest:
        return inputs
    if entries(inputs).get("attention_mask") is None:
        shortest = max(masking.length(2 * masking.frames()[1]) for masking in _masked(model))
    return _lengthened(inputs, name, shortest)


def _lengthened(inputs: B, name: str, length: int) -> B:
    """A batch with its input and all entries of that length padded to ``length``, if its layout is known."""
    named, axis = entries(inputs), time_axis(inputs, name)
    values = dict(named)
    for entry, place in (layout(inputs) or {}).items():
        if place == "input" and not entry.startswith("decoder_"):  # as long by chance
            value, along = named[entry], axis if entry == name else 1
            shape = list(value.shape)
            shape[along] = length - shape[along]
            values[entry] = torch.cat([value, value.new_full(shape, -100 if entry == "labels" else 0)], along)
    return like(inputs, values) if values[name] is not named[name] else inputs


def trimmed(inputs: B, length: int) -> B:
    """A batch with the input truncated to ``length``, and without columns of labels that all its samples ignore.

    Entries as long as the input (masks, labels of causal models) are truncated with it, those of the decoder with the
    labels. Everything is contiguous, as models call ``labels.view(-1)``. A batch of unknown input or layout is returned
    unchanged.
    """
    places = layout(inputs)
    if places is None:
        return inputs
    named = entries(inputs)
    if places.get("labels") == "input" and _used(named["labels"]) > length:
        return inputs  # as long as the input by chance: these are labels of something else
    stop = {"input": length, "labels": _used(named["labels"]) if "labels" in places.values() else 0}
    axis = time_axis(inputs, str(input_name(inputs)))
    values = dict(named)
    for name, place in places.items():
        along = axis if name == input_name(inputs) else 1
        values[name] = named[name].narrow(along, 0, stop[place]).contiguous()
    return like(inputs, values)


def each_trimmed(batch: object, clips: list[B], model: torch.nn.Module) -> list[B]:
    """The ``clips`` of a batch, each a batch of one, without padding that ``model`` does not need for it alone."""
    full, shortest = extent(batch).length, least_length(model)
    lengths = spoken_lengths(batch) or [full] * len(clips)
    return [trimmed(clip, min(max(length, shortest), full)) for clip, length in zip(clips, lengths, strict=True)]


def layout(inputs: object) -> dict[str, str] | None:
    """Whether each entry is as long as the ``"input"`` or the ``"labels"``; None when unknown.

    Entries with one value for each sample, and what is not a tensor, have no length.
    """
    named, name = entries(inputs), input_name(inputs)
    if name is None or "logits_to_keep" in named:  # labels then count from the end
        return None
    full, labels = named[name].shape[time_axis(inputs, name)], named.get("labels")
    text = labels.shape[1] if labels is not None and len(labels.shape) == 2 else None
    places = {name: "input"}
    for entry, value in named.items():
        shape: tuple[int, ...] = getattr(value, "shape", ())
        if entry == name or len(shape) < 2:
            continue
        if shape[1] == full:
            places[entry] = "input"
        elif shape[1] == text and (entry == "labels" or entry.startswith("decoder_")):
            places[entry] = "labels"
        elif entry != "labels":
            return None  # frames of another rate, positions in the whole batch, or the like
    return places


def _used(labels: torch.Tensor) -> int:
    """The number of leading columns of labels that hold all used ones, at least 1."""
    used = (labels != -100).flatten(2).any(-1).any(0) if len(labels.shape) > 2 else (labels != -100).any(0)
    return int(used.nonzero().max()) + 1 if bool(used.any()) else 1
