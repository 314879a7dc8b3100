"""Taking padding off, where that changes nothing.

A micro-batch of short clips, cut from a batch with a long one, keeps the padding to the long one's length. Models with
attention masks and without norms over time compute the same without it, in less memory and time. Norms over time
(GroupNorm over the frames, as in wav2vec2-base; batch normalisation) see the padding: there, it stays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .lengths import input_name, own_lengths, time_axis
from .split import batch_size, like, pick

_OVER_TIME = ("GroupNorm", "InstanceNorm", "BatchNorm")
_EXACT, _COARSE = 1e-5, 2e-2  # of 32-bit and of 16-bit arithmetic


def norms_over_time(model: Any) -> list[str]:
    """The names of layers whose output depends on padding, or on the other samples of a micro-batch."""
    return [name for name, m in model.named_modules() if any(kind in type(m).__name__ for kind in _OVER_TIME)]


def trimmed(inputs: Any, length: int) -> Any:
    """A batch without the input behind ``length``, and without columns of labels that all its samples ignore.

    One whose input is not known stays as it is.
    """
    name = input_name(inputs)
    if name is None:
        return inputs
    axis, mask = time_axis(inputs, name), inputs.get("attention_mask")
    values = {**inputs, name: inputs[name].narrow(axis, 0, length)}
    if hasattr(mask, "shape") and mask.shape[1] == inputs[name].shape[axis]:
        values["attention_mask"] = mask[:, :length]
    labels = inputs.get("labels")
    if hasattr(labels, "shape") and len(labels.shape) == 2:
        used = int((labels != -100).any(0).nonzero().max()) + 1 if bool((labels != -100).any()) else 1
        values["labels"] = labels[:, :used]
    return like(inputs, values)


def padding_changes_nothing(model: Any, inputs: Any, loss: Callable[[Any], Any], exact: bool) -> bool | None:
    """Whether the loss of the shortest sample is the same without its padding; None while no sample has any.

    ``loss`` computes that of a batch in evaluation mode. ``exact``: in 32-bit arithmetic.
    """
    lengths = own_lengths(inputs)
    if lengths is None or norms_over_time(model):
        return False
    shortest = min(range(batch_size(inputs)), key=lambda i: lengths[i])
    if lengths[shortest] >= max(lengths):
        return None
    sample = pick(inputs, [shortest])
    try:
        padded, bare = float(loss(sample)), float(loss(trimmed(sample, lengths[shortest])))
    except (ValueError, RuntimeError, IndexError):  # fixed lengths, or too short for the model's convolutions
        return False
    return abs(padded - bare) <= (_EXACT if exact else _COARSE) * max(abs(padded), 1e-6)
