"""Rows of a dataset through the user's collator, whose state stays as it was."""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import random
import types
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from .._base.errors import AsrConfigError, InvalidArgumentError
from .._base.random_state import cpu_generators_kept, seed_cpu
from .._base.wrapped_model import bare
from .collated_sizes import Sizes, sizes_of

_SHARED = ("torch", "transformers", "datasets", "tokenizers", "peft")  # their objects hold no state of a collator
_COPY_LIMIT = 4096  # entries of a container that is copied
_HINT = "check that collator([dataset[0]]) gives the model's keyword arguments, or pass batch_fn(batch, length, labels)"


class CollatedRows:
    """``batch`` of any rows, and the sizes of each row alone.

    The collator is a copy and starts from the same random numbers each time; the generators are put back. Its errors
    are raised as ``InvalidArgumentError``.
    """

    def __init__(self, dataset: Any, collator: Any, model: Any) -> None:
        self._dataset, self._original, self._model = dataset, collator, model
        self._sizes: dict[int, Sizes] = {}

    def row(self, number: int) -> Any:
        """One row of the dataset."""
        with cpu_generators_kept():  # a dataset may augment
            seed_cpu(0)
            return self._dataset[number]

    def sizes(self, number: int) -> Sizes:
        """The sizes of a batch of one row of the dataset."""
        if number not in self._sizes:
            self._sizes[number] = sizes_of(self.batch([self.row(number)]))
        return self._sizes[number]

    def batch(self, rows: list[Any]) -> dict[str, Any]:
        """Collates ``rows``."""
        with cpu_generators_kept():
            seed_cpu(0)
            try:
                batch = self._collator(rows)
            except AsrConfigError:
                raise
            except Exception as error:
                batch = self._without_unused(rows, error)
        made = dict(batch) if hasattr(batch, "keys") and hasattr(batch, "__getitem__") else {}
        if not any(getattr(value, "shape", None) for value in pytree.tree_leaves(made)):
            raise InvalidArgumentError(f"the collator gave a {type(batch).__name__} without tensors", _HINT)
        return made

    @cached_property
    def _collator(self) -> Any:
        return collator_copy(self._original)

    def _without_unused(self, rows: list[Any], error: Exception) -> Any:
        """As the Trainer collates where ``remove_unused_columns`` is left on."""
        if hasattr(self._model, "forward") and isinstance(rows[0], Mapping):
            parameters = {*inspect.signature(bare(self._model).forward).parameters, "label", "label_ids"}
            with contextlib.suppress(Exception):  # the first error says more
                return self._collator([{name: row[name] for name in row if name in parameters} for row in rows])
        raise InvalidArgumentError(
            f"the collator {type(self._original).__name__} fails: {type(error).__name__}: {error}", _HINT
        ) from error


def collator_copy(collator: Any) -> Any:
    """``collator`` with counters, containers and private generators of its own; itself where it cannot be copied.

    Models, processors, tokenizers and datasets that it holds are the same objects.
    """
    try:
        return _copied(collator, {})
    except Exception:  # of a class that cannot be copied, or not in this way
        return collator


def _copied(value: Any, done: dict[int, Any]) -> Any:
    if id(value) not in done:
        done[id(value)] = value  # in a reference cycle, the original
        done[id(value)] = _copy(value, done)
    return done[id(value)]


def _copy(value: Any, done: dict[int, Any]) -> Any:
    if isinstance(value, random.Random | np.random.Generator | np.random.RandomState):
        return copy.deepcopy(value)
    if isinstance(value, torch.Generator):
        return value.clone_state()
    if isinstance(value, functools.partial):
        words = {name: _copied(entry, done) for name, entry in value.keywords.items()}
        return functools.partial(_copied(value.func, done), *(_copied(entry, done) for entry in value.args), **words)
    if isinstance(value, types.MethodType):
        return types.MethodType(value.__func__, _copied(value.__self__, done))
    if isinstance(value, types.FunctionType):
        return _function(value, done)
    if type(value) in (list, tuple, set, dict) and len(value) <= _COPY_LIMIT:
        entries = value.items() if isinstance(value, dict) else value
        return type(value)(_copied(entry, done) for entry in entries)
    if isinstance(value, type) or not hasattr(value, "__dict__") or isinstance(value, types.ModuleType):
        return value
    if type(value).__module__.partition(".")[0] in _SHARED:
        return value
    made = copy.copy(value)
    for name, entry in vars(value).items():
        vars(made)[name] = _copied(entry, done)
    return made


def _function(function: types.FunctionType, done: dict[int, Any]) -> types.FunctionType:
    """A function with copies of the variables that it closes over."""
    if function.__closure__ is None:
        return function
    cells = tuple(types.CellType() for _ in function.__closure__)
    made = types.FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__, cells)
    made.__kwdefaults__, made.__dict__ = function.__kwdefaults__, {**function.__dict__}
    done[id(function)] = made
    for cell, variable in zip(cells, function.__closure__, strict=True):
        cell.cell_contents = _copied(variable.cell_contents, done)
    return made
