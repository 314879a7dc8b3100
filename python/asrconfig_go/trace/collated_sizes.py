"""Sizes of a collated batch of one clip, and which of them are the lengths of the input and of the labels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .._base import native
from .._base.defaults import SAMPLING_RATE
from .._base.input_units import INPUTS

Sizes = dict[tuple[str, int], int]  # by entry and axis
_AUDIO = INPUTS[:2]
_LABELS = ("label", "decoder", "input_ids")  # parts of the names of texts, in order of preference


@dataclass(frozen=True)
class Axis:
    """One axis of an entry. Where a clip becomes several rows of that entry, its size is that of all of them."""

    name: str = ""
    axis: int = 0

    def of(self, sizes: Sizes) -> int:
        """Its size in a batch of one clip; 0 without the entry."""
        rows = sizes.get((self.name, 0), 1) if self.axis else 1
        return rows * sizes.get((self.name, self.axis), 0)


@dataclass(frozen=True)
class Example:
    """A row of the dataset with the lengths of its input and its labels."""

    row: int
    length: int
    labels: int

    @property
    def pair(self) -> tuple[int, int]:
        """Length and labels."""
        return self.length, self.labels


def sizes_of(batch: Mapping[str, Any]) -> Sizes:
    """Every axis of every tensor and array of a batch, by the entry's name."""
    return {(name, axis): size for name, value in _arrays(batch) for axis, size in enumerate(value.shape)}


def _arrays(entries: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in entries.items():
        if isinstance(value, Mapping):
            yield from _arrays(value, f"{prefix}{name}.")
        elif isinstance(value, list | tuple):
            yield from _arrays({f"{name}.{i}": entry for i, entry in enumerate(value)}, prefix)
        elif getattr(value, "shape", None) is not None and len(value.shape):
            yield prefix + str(name), value


def input_axis(batch: Mapping[str, Any], sized: Iterable[Sizes]) -> Axis:
    """The input and its axis in time: what changes from clip to clip, or else its longest.

    Audio comes before tokens: where a model takes both, the tokens are a prompt and a text.
    """
    every = list(sized)
    arrays = {name: value for name, value in _arrays(batch) if "label" not in name and "mask" not in name}
    audio = next((name for name in _AUDIO if name in arrays), None)
    floating = [name for name, value in arrays.items() if "float" in str(value.dtype)]
    changing = [name for name in floating if _changing(name, every)]
    name = audio or next(iter(changing or [n for n in INPUTS if n in arrays] or floating or arrays), None)
    if name is None:
        return Axis()
    axes = [axis for axis in _changing(name, every) if axis] or list(range(1, arrays[name].ndim)) or [0]
    return Axis(name, max(axes, key=lambda axis: arrays[name].shape[axis]))


def labels_axis(sized: Iterable[Sizes], audio: Axis) -> Axis | None:
    """The axis of a text: it changes from clip to clip, and not as the input does. None if there is none."""
    every = list(sized)
    names = list(dict.fromkeys(name for name, _ in every[0] if name != audio.name and "mask" not in name))
    lengths = [audio.of(sizes) for sizes in every]
    for part in _LABELS:
        for name in names:
            axes = [Axis(name, at) for at in _changing(name, every) if at] if part in name else []
            axes = [axis for axis in axes if [axis.of(sizes) for sizes in every] != lengths]
            if axes:
                return axes[0]
    return None


def _changing(name: str, every: list[Sizes]) -> list[int]:
    """The axes of an entry whose size is not the same for all clips."""
    axes = [axis for entry, axis in every[0] if entry == name]
    return [axis for axis in axes if len({sizes.get((name, axis)) for sizes in every}) > 1]


def word_of(name: str, rate: float) -> str:
    """The noun for lengths of an input."""
    return "tokens" if name == "input_ids" else "samples" if rate == SAMPLING_RATE else "frames"


def text_sizes(rows: Any) -> list[int]:
    """The characters or labels in each row of a table or a list of dictionaries; empty where unknown.

    Of a ``datasets.Dataset`` only that column is read.
    """
    first = rows[0] if isinstance(rows, list) and rows and isinstance(rows[0], dict) else {}
    texts = native.call("library.info")["text_columns"]
    columns = getattr(rows, "column_names", None) or list(first)
    name = next(iter([*(n for n in columns if str(n).lower() in texts), *(n for n in columns if n == "labels")]), None)
    if name is None:
        return []
    if first:
        return [len(row[name]) if hasattr(row[name], "__len__") else 0 for row in rows]
    return _stored_sizes(rows.select_columns([name]).with_format("arrow")[:].column(name))


def _stored_sizes(column: Any) -> list[int]:
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return [size or 0 for size in pc.utf8_length(column).to_pylist()]
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        return [size or 0 for size in pc.list_value_length(column).to_pylist()]
    return []
