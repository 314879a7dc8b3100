"""Copies of collators, so that what a plan asks of one leaves no trace in the training's."""

from __future__ import annotations

import copy
import functools
import random
import types
from typing import Any

import numpy as np
import torch

_SHARED = ("torch", "transformers", "datasets", "tokenizers", "peft")  # their objects keep no state of a collator
_MOST = 4096  # entries of a container that are copied


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
        done[id(value)] = value  # of a circle, the original
        done[id(value)] = _copy(value, done)
    return done[id(value)]


def _copy(value: Any, done: dict[int, Any]) -> Any:
    if isinstance(value, random.Random | np.random.Generator | np.random.RandomState):
        return copy.deepcopy(value)
    if isinstance(value, torch.Generator):
        return value.clone_state()
    if isinstance(value, functools.partial):
        words = {name: _copied(each, done) for name, each in value.keywords.items()}
        return functools.partial(_copied(value.func, done), *(_copied(each, done) for each in value.args), **words)
    if isinstance(value, types.MethodType):
        return types.MethodType(value.__func__, _copied(value.__self__, done))
    if isinstance(value, types.FunctionType):
        return _function(value, done)
    if type(value) in (list, tuple, set, dict) and len(value) <= _MOST:
        entries = value.items() if isinstance(value, dict) else value
        return type(value)(_copied(each, done) for each in entries)
    if isinstance(value, type) or not hasattr(value, "__dict__") or isinstance(value, types.ModuleType):
        return value
    if type(value).__module__.partition(".")[0] in _SHARED:
        return value
    made = copy.copy(value)
    for name, each in vars(value).items():
        vars(made)[name] = _copied(each, done)
    return made


def _function(function: types.FunctionType, done: dict[int, Any]) -> types.FunctionType:
    """A function with variables of its own where it takes some from the function around it."""
    if function.__closure__ is None:
        return function
    cells = tuple(types.CellType() for _ in function.__closure__)
    made = types.FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__, cells)
    made.__kwdefaults__, made.__dict__ = function.__kwdefaults__, {**function.__dict__}
    done[id(function)] = made
    for cell, given in zip(cells, function.__closure__, strict=True):
        cell.cell_contents = _copied(given.cell_contents, done)
    return made
