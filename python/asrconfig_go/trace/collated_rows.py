"""Batches that a user's collator makes of rows of a dataset, and which of their axes are input and labels."""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import random
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from .._core import native
from .._core.batches import INPUTS
from .._core.modules import bare
from .._core.output import kind_of
from .._core.random_state import cpu_generators_kept, seed_cpu
from .._core.settings import SAMPLING_RATE
from ..errors import AsrConfigError, InvalidArgumentError

if TYPE_CHECKING:
    import pyarrow as pa
    from datasets import Dataset
    from torch import nn
    from transformers import PretrainedConfig

Collator = Callable[[list[Any]], Any]
Sizes = dict[tuple[str, int], int]  # of the axes of a batch, by entry and number of the axis
_AUDIO = INPUTS[:2]
_TEXT_NAMES = ("label", "decoder", "input_ids")  # parts of the names of texts, in order of preference
_LIBRARIES = ("torch", "transformers", "datasets", "tokenizers", "peft")  # their objects hold no state of a collator
_COPY_LIMIT = 4096  # entries of a container that is copied
_HINT = (
    "check that collator([dataset[0]]) returns the model's keyword arguments, or pass batch_fn(batch, length, labels)"
)


@dataclass(frozen=True)
class Axis:
    """One axis of an entry of a batch."""

    name: str = ""
    axis: int = 0

    def size(self, sizes: Sizes) -> int:
        """Its size in a batch of one clip, summed over the rows that a clip may become; 0 without the entry."""
        rows = sizes.get((self.name, 0), 1) if self.axis else 1
        return rows * sizes.get((self.name, self.axis), 0)


@dataclass(frozen=True)
class Example:
    """A row of the dataset, with the lengths of its input and of its labels."""

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


def input_axis(batch: Mapping[str, Any], all_sizes: list[Sizes]) -> Axis:
    """The axis of the input that is time: one that differs between clips, or else the longest.

    Where a ``batch`` of one clip has audio and tokens, the audio is the input, as the tokens are a prompt and a text.
    ``all_sizes`` are of batches of one clip each. The axis has no name where the batch has no entries.
    """
    arrays = {name: value for name, value in _arrays(batch) if "label" not in name and "mask" not in name}
    audio = next((name for name in _AUDIO if name in arrays), None)
    floating = [name for name, value in arrays.items() if "float" in str(value.dtype)]
    changing = [name for name in floating if _changing(name, all_sizes)]
    name = audio or next(iter(changing or [n for n in INPUTS if n in arrays] or floating or arrays), None)
    if name is None:
        return Axis()
    axes = [axis for axis in _changing(name, all_sizes) if axis] or list(range(1, arrays[name].ndim)) or [0]
    return Axis(name, max(axes, key=lambda axis: arrays[name].shape[axis]))


def labels_axis(all_sizes: list[Sizes], audio: Axis) -> Axis | None:
    """The axis of a text, which differs between clips in another way than the input; None if there is none."""
    names = list(dict.fromkeys(name for name, _ in all_sizes[0] if name != audio.name and "mask" not in name))
    lengths = [audio.size(sizes) for sizes in all_sizes]
    for part in _TEXT_NAMES:
        for name in names:
            axes = [Axis(name, at) for at in _changing(name, all_sizes) if at] if part in name else []
            axes = [axis for axis in axes if [axis.size(sizes) for sizes in all_sizes] != lengths]
            if axes:
                return axes[0]
    return None


def _changing(name: str, all_sizes: list[Sizes]) -> list[int]:
    """The axes of an entry whose sizes differ between clips."""
    axes = [axis for entry, axis in all_sizes[0] if entry == name]
    return [axis for axis in axes if len({sizes.get((name, axis)) for sizes in all_sizes}) > 1]


def unit_noun(name: str, rate: float) -> str:
    """The noun of an input's lengths: tokens, samples or frames."""
    return "tokens" if name == "input_ids" else "samples" if rate == SAMPLING_RATE else "frames"


def text_sizes(rows: Dataset) -> list[int]:
    """The number of characters or labels in each row of a ``datasets.Dataset`` or a list of dictionaries.

    It reads nothing but that column. Empty where there is none.
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


def _stored_sizes(column: pa.ChunkedArray) -> list[int]:
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return [size or 0 for size in pc.utf8_length(column).to_pylist()]
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        return [size or 0 for size in pc.list_value_length(column).to_pylist()]
    return []


class CollatedRows:
    """Collates rows of a dataset, always alike.

    It uses a copy of the collator, which starts from the same random numbers each time; the process's generators are
    left as they were. Errors of the collator are raised as ``InvalidArgumentError``.
    """

    def __init__(self, dataset: Dataset, collator: Collator, model: nn.Module | PretrainedConfig | None) -> None:
        self._dataset, self._original, self._model = dataset, collator, model
        self._sizes: dict[int, Sizes] = {}

    def row(self, number: int) -> Any:
        """One row of the dataset."""
        with cpu_generators_kept():  # a dataset may augment its clips
            seed_cpu(0)
            return self._dataset[number]

    def sizes(self, number: int) -> Sizes:
        """The sizes of a batch of one row of the dataset."""
        if number not in self._sizes:
            self._sizes[number] = sizes_of(self.batch([self.row(number)]))
        return self._sizes[number]

    def batch(self, rows: list[Any]) -> dict[str, Any]:
        """The collator's batch of ``rows``."""
        with cpu_generators_kept():
            seed_cpu(0)
            try:
                batch = self._collator(rows)
            except AsrConfigError:
                raise
            except Exception as error:
                batch = self._collate_without_unused(rows, error)
        made = dict(batch) if hasattr(batch, "keys") and hasattr(batch, "__getitem__") else {}
        if not any(getattr(value, "shape", None) for value in pytree.tree_leaves(made)):
            raise InvalidArgumentError(f"the collator gave {kind_of(batch)} without tensors", _HINT)
        return made

    @cached_property
    def _collator(self) -> Any:
        return collator_copy(self._original)

    def _collate_without_unused(self, rows: list[Any], error: Exception) -> Any:
        """Collate the columns that the model takes, as the Trainer does where ``remove_unused_columns`` is on."""
        if hasattr(self._model, "forward") and isinstance(rows[0], Mapping):
            parameters = {*inspect.signature(bare(self._model).forward).parameters, "label", "label_ids"}
            with contextlib.suppress(Exception):  # the first error says more
                return self._collator([{name: row[name] for name in row if name in parameters} for row in rows])
        raise InvalidArgumentError(
            f"the collator {type(self._original).__name__} fails: {type(error).__name__}: {error}", _HINT
        ) from error


def collator_copy(collator: Collator) -> Any:
    """A copy of ``collator`` with its own counters, containers and generators, or itself where it cannot be copied.

    The copy shares the models, processors, tokenizers and datasets.
    """
    try:
        return _copied(collator, {})
    except Exception:  # an object of a class that cannot be copied in this way
        return collator


def _copied(value: object, done: dict[int, Any]) -> Any:
    if id(value) not in done:
        done[id(value)] = value  # a reference cycle ends at the original
        done[id(value)] = _copy(value, done)
    return done[id(value)]


def _copy(value: Any, done: dict[int, Any]) -> Any:
    if isinstance(value, random.Random | np.random.Generator | np.random.RandomState):
        return copy.deepcopy(value)
    if isinstance(value, torch.Generator):
        return value.clone_state()
    if isinstance(value, functools.partial):
        keywords = {name: _copied(entry, done) for name, entry in value.keywords.items()}
        return functools.partial(_copied(value.func, done), *(_copied(entry, done) for entry in value.args), **keywords)
    if isinstance(value, types.MethodType):
        return types.MethodType(value.__func__, _copied(value.__self__, done))
    if isinstance(value, types.FunctionType):
        return _function_copy(value, done)
    if type(value) in (list, tuple, set, dict) and len(value) <= _COPY_LIMIT:
        entries = value.items() if isinstance(value, dict) else value
        return type(value)(_copied(entry, done) for entry in entries)
    if isinstance(value, type | types.ModuleType) or not hasattr(value, "__dict__"):
        return value
    if type(value).__module__.partition(".")[0] in _LIBRARIES:
        return value
    made = copy.copy(value)
    for name, entry in vars(value).items():
        vars(made)[name] = _copied(entry, done)
    return made


def _function_copy(function: types.FunctionType, done: dict[int, Any]) -> types.FunctionType:
    """A copy of a function, with copies of its closure variables."""
    if function.__closure__ is None:
        return function
    cells = tuple(types.CellType() for _ in function.__closure__)
    made = types.FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__, cells)
    made.__kwdefaults__, made.__dict__ = function.__kwdefaults__, {**function.__dict__}
    done[id(function)] = made
    for cell, variable in zip(cells, function.__closure__, strict=True):
        cell.cell_contents = _copied(variable.cell_contents, done)
    return made
