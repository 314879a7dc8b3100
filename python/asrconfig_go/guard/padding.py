"""Taking padding off, where that changes nothing.

A micro-batch of short clips, split from a batch with a long one, keeps the padding to the long one's length. Models
with attention masks and without norms over time compute the same without it, in less memory and time. Norms over time
(GroupNorm over the frames, as in wav2vec2-base; batch normalisation) see the padding: there, it stays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..batching.batch_lengths import input_name, own_lengths, time_axis
from ..batching.collated_batch import like, pick

_OVER_TIME = ("GroupNorm", "InstanceNorm", "BatchNorm")
_TRIED = 8  # batches
LATER = 2**20  # batches, behind which what is tried at powers of two is rare
_EXACT, _COARSE = 2e-6, 2e-2  # of 32-bit and of 16-bit arithmetic


def norms_over_time(model: Any) -> list[str]:
    """The names of layers whose output depends on padding, or on the other samples of a micro-batch."""
    return [name for name, m in model.named_modules() if any(kind in type(m).__name__ for kind in _OVER_TIME)]


def trimmed(inputs: Any, length: int) -> Any:
    """A batch without the input behind ``length``, and without columns of labels that all its samples ignore.

    Entries that are as long as the input (masks, labels of causal models) end with it, those of the decoder with the
    labels. Everything is contiguous, as models take ``labels.view(-1)``. A batch whose input is not known stays as it
    is, and so does one that ``layout`` does not understand.
    """
    places, labels = layout(inputs), inputs.get("labels")
    if places is None:
        return inputs
    if places.get("labels") == "input" and _used(labels) > length:
        return inputs  # as long as the input by chance: these are labels of something else
    stop = {"input": length, "labels": _used(labels) if "labels" in places.values() else 0}
    axis = time_axis(inputs, str(input_name(inputs)))
    values = dict(inputs)
    for name, place in places.items():
        along = axis if name == input_name(inputs) else 1
        values[name] = inputs[name].narrow(along, 0, stop[place]).contiguous()
    return like(inputs, values)


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


class PaddingCheck:
    """Whether padding may be taken off batches of one training, by trying it.

    All samples of the first eight padded batches of each kind (entries, and what they are as long as) are tried, and
    those of the 16th, 32nd and so on that is split: what depends on lengths, as models that join frames in groups
    do, shows in some of them. Once a try fails, padding stays.
    """

    def __init__(self) -> None:
        self._met: dict[Any, int] = {}
        self._refused: set[Any] = set()

    def later(self) -> PaddingCheck:
        """What it knows later in a training, when tries have become rare."""
        found = PaddingCheck()
        found._met = {kind: LATER if met >= _TRIED else met for kind, met in self._met.items()}
        found._refused = set(self._refused)
        return found

    def allowed(self, inputs: Any, changes_nothing: Callable[[], bool]) -> bool:
        """Whether it changes nothing in ``inputs``, by ``padding_changes_nothing``."""
        lengths, places = own_lengths(inputs), layout(inputs)
        if lengths is None or places is None or min(lengths) >= max(lengths):
            return False
        kind = tuple(sorted(places.items())), tuple(sorted(inputs))
        self._met[kind] = met = self._met.get(kind, 0) + 1
        due = met <= _TRIED or not met & (met - 1)  # a power of two
        if kind not in self._refused and due and not changes_nothing():
            self._refused.add(kind)
        return kind not in self._refused


def padding_changes_nothing(model: Any, inputs: Any, loss: Callable[[Any], Any], exact: bool) -> bool:
    """Whether the loss of each sample is the same without its padding, and can be computed in training, too.

    ``loss`` computes that of a batch, here first in evaluation mode. ``exact``: in 32-bit arithmetic.
    """
    lengths = own_lengths(inputs)
    if lengths is None or norms_over_time(model):
        return False
    padded_rows = sorted((i for i, n in enumerate(lengths) if n < max(lengths)), key=lambda i: lengths[i])
    try:
        for row in padded_rows:
            sample = pick(inputs, [row])
            short = trimmed(sample, lengths[row])
            padded, bare = float(loss(sample)), float(loss(short))
            if not abs(padded - bare) <= (_EXACT if exact else _COARSE) * max(abs(padded), 1e-6):
                return False
        model.train()
        loss(trimmed(pick(inputs, padded_rows[:1]), min(lengths)))  # masks of time may be longer than what is left
    except (ValueError, RuntimeError, IndexError):  # fixed lengths, or too short for the model's convolutions
        return False
    finally:
        model.eval()
    return True
