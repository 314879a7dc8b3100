"""Inputs of models by name and unit; collated batches in pieces, and the lengths of their samples.

Plans, traces and reports reckon in seconds, also of texts: see ``TokensPerSecond`` of core/units.

The batch is split as it was collated, padding included: collating its clips again would pad them to other lengths,
which changes what group normalisation over time and convolutions compute. A batch is a mapping, a tuple or list of
tensors, mappings within mappings, or a list of rows.
"""

from __future__ import annotations

import copy
import math
from collections import UserDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ..errors import InvalidArgumentError
from .declared import WORDS, RowKind
from .output import listed

if TYPE_CHECKING:
    from torch import Tensor

INPUTS: Final = ("input_values", "input_features", "input_ids")
"""What models of transformers call their input: samples, frames of features, tokens."""
_AUDIO = (*INPUTS[:2], "audio", "speech", "mel", "spectrogram", "waveform")
TOKENS_PER_SECOND: Final = WORDS["texts"].per_second
FRAMES_PER_SECOND: Final = 100
"""Frame rate assumed for spectrograms of an unknown model: 10 ms a frame, as in log-mel features."""
B = TypeVar("B")
"""A batch: a mapping of tensors, a tuple or list of them, or one."""

_HINT = "pass attach(split=…) with a function from (inputs, size) to a list of inputs"
_MAIN = ("labels", "input_values", "input_features", "input_ids")
_ROWS = "collate the tensors that have a row for each clip as entries of the batch itself"


def audio_name(names: Iterable[str]) -> str | None:
    """The first name of an argument or setting that stands for audio; None where no name does."""
    return next((name for name in names if any(part in name for part in _AUDIO)), None)


@dataclass(frozen=True)
class InputUnit:
    """The unit of a model's input lengths: ``per_second`` ``word``; all inputs are padded to ``fixed``, if set.

    ``row_kind``: ``"texts"`` where rows hold tokens and no audio.
    """

    word: str
    per_second: float
    fixed: int | None = None
    row_kind: RowKind = "clips"

    def seconds(self, length: int) -> float:
        """Convert an input length to seconds."""
        return (self.fixed or length) / self.per_second

    def __str__(self) -> str:
        if self.row_kind == "texts":
            return self.word if self.fixed is None else f"{self.fixed} {self.word} each"
        rate = f"{self.per_second:g} {self.word} a second"
        return rate if self.fixed is None else f"each of {self.seconds(0):g} s, {rate}"


class UnsplittableBatchError(InvalidArgumentError):
    """A batch has entries that do not belong to its clips one by one."""


def entries(inputs: object) -> Mapping[str, Tensor]:
    """The named entries of a batch; none of a tuple or a list."""
    return inputs if isinstance(inputs, Mapping) else {}


def batch_size(inputs: object) -> int:
    """The number of clips in a collated batch: the length of its labels or its input, or else of what comes first.

    Raises ``UnsplittableBatchError`` for a batch without anything that has a row for each clip.
    """
    if isinstance(inputs, Mapping):
        counts = [_count(inputs.get(name)) for name in _MAIN] + [_count(value) for value in inputs.values()]
    elif (values := _in_order(inputs)) is not None:
        counts = [_count(value) for value in values]
    else:
        counts = [_count(inputs)]
    size = next((count for count in counts if count is not None), None)
    if size is None:
        names = sorted(inputs) if isinstance(inputs, Mapping) else type(inputs).__name__
        raise UnsplittableBatchError(f"a batch of {names} has no entry with one value for each clip", _ROWS)
    return size


def _in_order(inputs: object) -> Sequence[Tensor] | None:
    """The entries of a batch that is a tuple or a list of tensors."""
    if isinstance(inputs, tuple):
        return inputs
    tensors = isinstance(inputs, list) and all(hasattr(e, "shape") or _rows_in_common(e) for e in inputs)
    return inputs if isinstance(inputs, list) and inputs and tensors else None


def _count(value: object) -> int | None:
    """The rows of an entry; None for texts, settings and tensors without dimensions."""
    shape = getattr(value, "shape", None)
    if shape is not None:
        return int(shape[0]) if len(shape) else None  # len() of a tensor takes several times as long
    if isinstance(value, Mapping):
        return next((count for entry in value.values() if (count := _count(entry)) is not None), None)
    if isinstance(value, list | tuple):
        return _rows_in_common(value) or len(value)
    return None


def _rows_in_common(value: object) -> int | None:
    """The rows of tensors of several ranks, as padded clips beside their lengths; None where each is one clip's."""
    shapes = [tuple(getattr(entry, "shape", ())) for entry in value] if isinstance(value, list | tuple) else []
    is_common = len({len(shape) for shape in shapes}) > 1 and len({shape[:1] for shape in shapes}) == 1
    return int(shapes[0][0]) if is_common else None


def _wrong(name: str, value: object, size: int) -> Iterator[str]:
    """Names the parts of an entry that do not have ``size`` rows."""
    if isinstance(value, Mapping):
        for key, entry in sorted(value.items(), key=lambda item: str(item[0])):
            yield from _wrong(f"{name}.{key}", entry, size)
    elif isinstance(value, list | tuple) and _is_group(value, size):
        for number, entry in enumerate(value):
            yield from _wrong(f"{name}[{number}]", entry, size)
    elif (count := _count(value)) not in (None, size):
        yield f"{name} has {count}"


def _is_group(value: object, size: int) -> bool:
    """Whether a tuple or list holds entries with ``size`` rows each, rather than one element for each clip."""
    if not isinstance(value, list | tuple):
        return False
    if len(value) == size:
        return _rows_in_common(value) == size
    return bool(value) and all(_count(entry) == size for entry in value)


def check_rows(inputs: object) -> int:
    """The number of clips, or ``UnsplittableBatchError`` with the entries that have another number of rows."""
    size = batch_size(inputs)
    if entries(inputs).get("sampled_negative_indices") is not None:
        raise UnsplittableBatchError(
            "sampled_negative_indices holds positions in the whole batch, so that it cannot be split", _HINT
        )
    named = sorted(entries(inputs).items(), key=lambda item: str(item[0]))
    named += [(f"entry {number}", value) for number, value in enumerate(_in_order(inputs) or ())]
    wrong = [text for name, value in named for text in _wrong(str(name), value, size)]
    if wrong:
        raise UnsplittableBatchError(f"a batch of {size} clips cannot be split: {listed(wrong)}", _HINT)
    return size


def split(inputs: B, size: int) -> list[B]:
    """``inputs`` in pieces of at most ``size`` clips, in order; shared entries are in all of them.

    Raises ``UnsplittableBatchError`` naming the entries that have another length than the batch.
    """
    count = check_rows(inputs)
    return [piece(inputs, start, min(start + size, count)) for start in range(0, count, size)]


def piece(inputs: B, start: int, stop: int) -> B:
    """The clips from ``start`` to ``stop``, as the same kind of batch; its tensors are views."""
    return _selected(inputs, lambda value: value[start:stop])


def pick(inputs: B, rows: list[int]) -> B:
    """The clips of these numbers, in their order, as the same kind of batch."""
    import torch

    def chosen(value: Any) -> Any:
        clips = [value[row] for row in rows]
        return torch.stack(clips) if hasattr(value, "shape") else type(value)(clips)  # value[rows] takes twice as long

    return _selected(inputs, chosen)


def _selected(inputs: B, choose: Callable[[Tensor], Tensor]) -> B:
    size = batch_size(inputs)

    def part(value: Any) -> Any:
        if isinstance(value, Mapping):
            return like(value, {name: part(entry) for name, entry in value.items()})
        if _is_group(value, size):
            return _same_kind(value, [part(entry) for entry in value])
        return value if _count(value) is None else choose(value)

    values = _in_order(inputs)
    chosen: B = part(inputs) if values is None else _same_kind(inputs, [part(value) for value in values])
    return chosen


def copied(inputs: B) -> B:
    """A batch with copies of all tensors, which may be changed in place."""
    if isinstance(inputs, Mapping):
        return like(inputs, {name: copied(value) for name, value in inputs.items()})
    return inputs.clone() if hasattr(inputs, "clone") else copy.deepcopy(inputs)


def shallow(inputs: B) -> B:
    """A new batch with the same tensors, from which entries may be removed."""
    return like(inputs, dict(inputs)) if isinstance(inputs, Mapping) else copy.copy(inputs)


def tensors_of(inputs: object) -> Iterator[Tensor]:
    """The tensors of a batch."""
    if hasattr(inputs, "_version"):
        yield inputs
    elif isinstance(inputs, Mapping):
        for value in inputs.values():
            yield from tensors_of(value)
    elif isinstance(inputs, list | tuple):
        for value in inputs:
            yield from tensors_of(value)


def like(inputs: B, values: dict[str, Any]) -> B:
    """A mapping of the kind of ``inputs`` (``BatchFeature``, dict) with other values."""
    made: Any = values if type(inputs) is dict else copy.copy(inputs)
    batch: B = made
    if isinstance(inputs, UserDict):
        made.data = values  # which a copy shares
    elif is_dataclass(inputs):  # transformers' ModelOutput, which refuses clear() and update()
        for name, value in values.items():
            made[name] = value
    elif type(inputs) is not dict:
        made.clear()
        made.update(values)
    return batch


def _same_kind(value: Any, parts: list[Any]) -> Any:
    return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)


@dataclass(frozen=True)
class Extent:
    """A sample's input: its length in samples of audio or frames, and values (numbers) in each of them."""

    length: int
    width: int = 1

    @property
    def values(self) -> int:
        """Numbers in all, at least 1."""
        return max(1, self.length * self.width)


def input_name(inputs: object) -> str | None:
    """The entry that is the model's input; None of a model with other names."""
    for name in INPUTS:
        if hasattr(entries(inputs).get(name), "shape"):
            return name
    return None


def extent(inputs: object) -> Extent:
    """The extent of each sample of a batch, padding included; 1 × 1 where the input is not known."""
    name = input_name(inputs)
    if name is None:
        return Extent(1)
    shape = entries(inputs)[name].shape
    if len(shape) <= 2:
        return Extent(int(shape[1]) if len(shape) == 2 else 1)
    axis = time_axis(inputs, name)
    return Extent(int(shape[axis]), math.prod(int(n) for i, n in enumerate(shape) if i not in (0, axis)))


def time_axis(inputs: object, name: str) -> int:
    """The axis along which samples are padded: 1, or the last one of Whisper's (batch, mel bins, frames)."""
    mask, shape = entries(inputs).get("attention_mask"), entries(inputs)[name].shape
    if len(shape) == 3 and mask is not None and mask.shape[-1] == shape[1]:
        return 1
    return 2 if name == "input_features" and len(shape) == 3 and shape[2] > shape[1] else 1


def own_lengths(inputs: object) -> list[int] | None:
    """The length of every sample without its padding, from an attention mask of ones, then zeros; None if unknown."""
    mask: Tensor = entries(inputs).get("attention_mask")
    if input_name(inputs) is None or len(getattr(mask, "shape", ())) != 2 or mask.shape[1] != extent(inputs).length:
        return None
    # Reading a mask, most of it padding, takes longer than all else that is done to split a batch: it is added up once.
    # Where a row begins with as many ones as there are in all of it, zeros follow.
    # Torch adds up other types, and int32 as int64, at a twentieth of the speed of int32 as it is.
    is_used = (mask != 0 if mask.is_floating_point() else mask).int()
    lengths: list[int] = is_used.sum(1, dtype=is_used.dtype).tolist()
    if int(sum(row[:length].sum() for row, length in zip(is_used, lengths, strict=True))) < sum(lengths):
        return None
    return [min(max(1, length), mask.shape[1]) for length in lengths]


def clip_lengths(inputs: object) -> list[int]:
    """The length of every sample: without padding as far as that is known."""
    return spoken_lengths(inputs) or [extent(inputs).length] * batch_size(inputs)


def spoken_lengths(inputs: object) -> list[int] | None:
    """Like ``own_lengths``; without a mask, lengths follow from the zeros that pad raw audio."""
    lengths = own_lengths(inputs)
    values: Tensor = entries(inputs).get("input_values")
    if lengths is not None or not hasattr(values, "shape") or len(values.shape) != 2:
        return lengths
    length = values.shape[1]
    zeros = (values.flip(1) != 0).int().argmax(1)
    return [length - int(n) if bool(row.any()) else 1 for n, row in zip(zeros, values, strict=True)]
