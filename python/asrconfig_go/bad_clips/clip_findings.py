"""What is unusual in a clip's audio and labels: the usual causes of losses that are not finite."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from ..batching.batch_lengths import extent, input_name, spoken_lengths, time_axis
from ..batching.collated_batch import batch_size
from ..data.label_faults import faults
from ..data.label_limits import IGNORED
from ..data.label_rules import LabelRules, rules_of
from ..memory.worst_batch import is_mel, per_second
from ..view.units import plural

_TIMES = 4.0  # as long as the median clip of the batch
_LOUDER = 30.0  # than the median clip of the batch
_SILENT = 1e-6  # largest difference between two samples


@dataclass(frozen=True)
class Measured:
    """A clip of a collated batch: seconds without padding, labels, and how loud it is (root mean square)."""

    seconds: float | None
    labels: list[int]
    loudness: float | None
    spread: float | None
    unfinite: int


def look_at(inputs: Any, model: Any, labels: str = "labels") -> list[Measured]:
    """Each clip of a batch, by its input and labels."""
    lengths, rate, name = spoken_lengths(inputs), per_second(inputs, model), input_name(inputs)
    if lengths is None and name is not None and "attention_mask" not in inputs and not is_mel(inputs, model):
        lengths = [extent(inputs).length] * batch_size(inputs)
    texts = inputs.get(labels)
    clips = []
    has_texts = hasattr(texts, "shape") and len(texts.shape) == 2 and not texts.is_floating_point()
    for i in range(batch_size(inputs)):
        own = [int(label) for label in texts[i].tolist() if label != IGNORED] if has_texts else []
        audio = None
        if name is not None and inputs[name].is_floating_point():
            axis = time_axis(inputs, name) - 1
            padded = inputs[name][i]
            audio = padded if lengths is None or axis >= padded.dim() else padded.narrow(axis, 0, lengths[i])
        seconds = None if lengths is None or rate is None else lengths[i] / rate
        clips.append(Measured(seconds, own, *_levels(audio)))
    return clips


def _levels(audio: Any) -> tuple[float | None, float | None, int]:
    if audio is None or not audio.numel():
        return None, None, 0
    audio = audio.detach().float()
    fine = audio[torch.isfinite(audio)]
    bad = audio.numel() - fine.numel()
    if not fine.numel():
        return None, None, bad
    return float(fine.square().mean().sqrt()), float(fine.max() - fine.min()), bad


def findings(clips: list[Measured], model: Any, has_labels: bool = True) -> list[tuple[str, ...]]:
    """In words, for each clip of a batch."""
    rules = rules_of(model)
    seconds = [c.seconds for c in clips if c.seconds is not None]
    loud = [c.loudness for c in clips if c.loudness is not None]
    usual = (statistics.median(seconds) if seconds else None, statistics.median(loud) if loud else None)
    return [tuple(_of(clip, rules, usual, has_labels)) for clip in clips]


def _of(clip: Measured, rules: LabelRules, usual: tuple[float | None, float | None], has_labels: bool) -> Iterator[str]:
    if clip.unfinite:
        yield f"its audio has {plural(clip.unfinite, 'value')} not finite: decode it again, or leave it out"
    if clip.spread is not None and clip.spread <= _SILENT and not clip.unfinite:
        yield "its audio is silent: leave it out"
    if clip.loudness is not None and usual[1] and clip.loudness > _LOUDER * usual[1]:
        yield f"its audio is {clip.loudness / usual[1]:.0f} times as loud as the batch's median clip: normalise it"
    if clip.seconds is not None and usual[0] and clip.seconds > _TIMES * usual[0]:
        yield f"it is {clip.seconds / usual[0]:.1f} times as long as the batch's median clip"
    if has_labels and not clip.labels:
        yield "it has no labels: leave it out"
    for name, detail in faults(clip.labels, clip.seconds, rules) if has_labels and clip.labels else ():
        if name == "outside":
            others = "the model" if rules.vocabulary is None else f"the {rules.vocabulary} of the model"
            yield f"{detail} is not among {others}: use the tokenizer that the model is for"
        elif name == "blank":
            yield f"{detail} is CTC's blank: set model.config.pad_token_id to the tokenizer's, and pad labels with -100"
        elif name == "too_long":
            yield f"{detail}: shorten the text, or leave it out"
