"""Truncates padding that a collated batch does not need, and pads batches that are too short to train on.

A micro-batch of short clips, split from a batch with a long one, is padded to the length of the long one. Models with
attention masks and without norms over time compute the same without that padding, in less memory and time. Norms over
time (GroupNorm over the frames, as in wav2vec2-base; batch normalisation) see the padding, so it stays there. Callers
decide which of the two a model is: the guard by its table of losses, and a replay by trying both.

SpecAugment of transformers raises an error where all clips of a batch are shorter than one mask. ``padded_for_masks``
pads such a batch. Nothing here changes a batch in place: each function returns a new one, or the batch itself.
"""

from __future__ import annotations

import bisect
import inspect
import weakref
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Literal, TypeAlias

import torch

from .batches import B, clip_lengths, entries, extent, input_name, like, pick, time_axis
from .modules import bare

_MASK_METHODS = ("_mask_hidden_states", "_mask_input_features")  # by which transformers' models apply SpecAugment
_LONGEST_INPUT = 1 << 20  # where the search for the input of a mask's frames ends: 65 s of samples at 16 kHz
_IGNORED_LABEL = -100

Layout: TypeAlias = dict[str, Literal["input", "labels"]]


class _TimeMasks:
    """SpecAugment's masks over time in one module, by the current values of its config."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._module: Callable[[], torch.nn.Module | None] = weakref.ref(module)
        self._input_lengths: dict[int, int] = {}

    def mask_frames(self) -> int:
        """The frames of one mask; 0 where nothing is masked."""
        config = getattr(self._module(), "config", None)
        if not (getattr(config, "mask_time_prob", 0) and getattr(config, "apply_spec_augment", True)):
            return 0
        return int(getattr(config, "mask_time_length", 0) or 0)

    def masked_frames(self) -> int:
        """The frames of the fewest masks that a clip gets; 0 where nothing is masked."""
        config = getattr(self._module(), "config", None)
        return self.mask_frames() * max(1, int(getattr(config, "mask_time_min_masks", 0) or 0))

    def input_length(self, frames: int) -> int:
        """The shortest input from which the module computes ``frames`` frames."""
        module = self._module()
        frames_of = getattr(module, "_get_feat_extract_output_lengths", None)
        if not frames or frames_of is None or getattr(module, "main_input_name", "") == "input_features":
            return frames
        if frames not in self._input_lengths:
            if "add_adapter" in inspect.signature(frames_of).parameters:  # the adapter comes after the masks
                frames_of = partial(frames_of, add_adapter=False)
            self._input_lengths[frames] = bisect.bisect_left(
                range(_LONGEST_INPUT), frames, key=lambda length: int(frames_of(torch.tensor(length)))
            )
        return self._input_lengths[frames]


_time_masks: weakref.WeakKeyDictionary[torch.nn.Module, list[_TimeMasks]] = weakref.WeakKeyDictionary()


def _time_masks_of(model: torch.nn.Module) -> list[_TimeMasks]:
    """The modules of a model that apply SpecAugment, searched once for each model."""
    if model not in _time_masks:
        modules = bare(model).modules()
        _time_masks[model] = [_TimeMasks(m) for m in modules if any(hasattr(m, name) for name in _MASK_METHODS)]
    return _time_masks[model]


def min_input_length(model: torch.nn.Module) -> int:
    """The length below which SpecAugment of ``model`` raises an error, in the units of its input; 0 without masks."""
    return max((masks.input_length(masks.mask_frames()) for masks in _time_masks_of(model)), default=0)


def min_trimmed_length(model: torch.nn.Module) -> int:
    """The length to which a clip may be trimmed: ``model`` then computes a frame of it, or as many as a mask has."""
    return max((masks.input_length(max(1, masks.mask_frames())) for masks in _time_masks_of(model)), default=0)


def padded_for_masks(inputs: B, model: torch.nn.Module) -> B:
    """Pad a batch of which every clip is shorter than a mask of SpecAugment; return any other batch unchanged.

    With an attention mask, SpecAugment masks nothing of such clips, and results do not depend on the padding. Without
    one, masks may lie anywhere, as in any padded clip: the batch is padded until they cover at most half of it.
    """
    min_length = min_input_length(model)
    name = input_name(inputs) if min_length else None
    if name is None or extent(inputs).length >= min_length:
        return inputs
    if entries(inputs).get("attention_mask") is None:
        min_length = max(masks.input_length(2 * masks.masked_frames()) for masks in _time_masks_of(model))
    return _padded(inputs, name, min_length)


def _padded(inputs: B, name: str, length: int) -> B:
    """Pad the input, and all entries as long as it, to ``length``; return a batch of unknown layout unchanged."""
    tensors, axis = entries(inputs), time_axis(inputs, name)
    values = dict(tensors)
    for entry, measure in (layout(inputs) or {}).items():
        if measure == "input" and not entry.startswith("decoder_"):  # the decoder's are as long by chance
            value, time = tensors[entry], axis if entry == name else 1
            shape = list(value.shape)
            shape[time] = length - shape[time]
            padding = value.new_full(shape, _IGNORED_LABEL if entry == "labels" else 0)
            values[entry] = torch.cat([value, padding], time)
    return like(inputs, values) if values[name] is not tensors[name] else inputs


def trimmed(inputs: B, length: int) -> B:
    """Truncate the input to ``length``, and the labels to the last column that some clip uses.

    Entries as long as the input (masks, labels of causal models) are truncated with it, those of the decoder with the
    labels. All tensors are contiguous, as models call ``labels.view(-1)``. A batch of unknown input or layout is
    returned unchanged.
    """
    measures = layout(inputs)
    label_ends = [] if measures is None else _label_ends(inputs, measures)
    narrowed = _narrowed(inputs, measures, length, max(label_ends, default=0))
    if narrowed is inputs:
        return inputs
    tensors = entries(narrowed)
    return like(inputs, {**tensors, **{name: tensors[name].contiguous() for name in measures or {}}})


def micro_batches(inputs: B, groups: Iterable[tuple[list[int], int]]) -> Iterator[B]:
    """The clips of each group, its rows and the length of its input, in their order, trimmed as ``trimmed`` does.

    Labels are read once for all groups, and only what is left after trimming is copied.
    """
    measures = layout(inputs)
    label_ends = [] if measures is None else _label_ends(inputs, measures)
    for rows, length in groups:
        label_length = max(label_ends[row] for row in rows) if label_ends else 0
        yield pick(_narrowed(inputs, measures, length, label_length), rows)


def _narrowed(inputs: B, measures: Layout | None, length: int, label_length: int) -> B:
    """Views of the input's first ``length`` values and of the first ``label_length`` labels."""
    if measures is None or (measures.get("labels") == "input" and label_length > length):
        return inputs  # the labels are as long as the input by chance, and label something else than its values
    tensors, input_entry = entries(inputs), str(input_name(inputs))
    axis = time_axis(inputs, input_entry)
    values = dict(tensors)
    for name, measure in measures.items():
        stop = length if measure == "input" else label_length
        values[name] = tensors[name].narrow(axis if name == input_entry else 1, 0, stop)
    return like(inputs, values)


def _label_ends(inputs: object, measures: Layout) -> list[int]:
    """For each clip the columns up to its last label that is not ignored, at least 1; nothing without such labels."""
    if "labels" not in measures.values() and "labels" not in measures:
        return []
    is_used = entries(inputs)["labels"] != _IGNORED_LABEL
    is_used = is_used.flatten(2).any(-1) if len(is_used.shape) > 2 else is_used
    columns = torch.arange(1, is_used.shape[1] + 1, device=is_used.device)
    ends: list[int] = (columns * is_used).amax(1).clamp(min=1).tolist()
    return ends


def trimmed_clips(batch: object, clips: list[B], model: torch.nn.Module) -> list[B]:
    """Trim each clip of ``batch``, a batch of one, to its own length, but not below what ``model`` can train on."""
    padded_length, min_length = extent(batch).length, min_trimmed_length(model)
    lengths = (min(max(length, min_length), padded_length) for length in clip_lengths(batch))
    return [trimmed(clip, length) for clip, length in zip(clips, lengths, strict=True)]


def layout(inputs: object) -> Layout | None:
    """Which entries are as long as the input, and which as long as the labels; None where that is unknown.

    Entries with one value for each clip, and values that are no tensors, are not listed.
    """
    tensors, name = entries(inputs), input_name(inputs)
    if name is None or "logits_to_keep" in tensors:  # labels then count from the end
        return None
    input_length, labels = tensors[name].shape[time_axis(inputs, name)], tensors.get("labels")
    label_length = labels.shape[1] if labels is not None and len(labels.shape) == 2 else None
    measures: Layout = {name: "input"}
    for entry, value in tensors.items():
        shape: tuple[int, ...] = getattr(value, "shape", ())
        if entry == name or len(shape) < 2:
            continue
        if shape[1] == input_length:
            measures[entry] = "input"
        elif shape[1] == label_length and (entry == "labels" or entry.startswith("decoder_")):
            measures[entry] = "labels"
        elif entry != "labels":
            return None  # such as frames of another rate, or positions in the batch
    return measures
