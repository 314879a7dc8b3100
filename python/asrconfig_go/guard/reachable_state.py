"""Finds the objects that a training loop and its model hold: what a step may change besides weights and gradients.

It follows attributes, modules, containers and the variables of functions, and calls nothing of the user's.
"""

from __future__ import annotations

import copy
import io
import random
import sys
import types
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

_MAX_DEPTH = 4  # nested objects and containers, modules not counted
_MAX_ELEMENTS = 1000  # of a container whose elements are followed
_MODULE_PARTS = ("_parameters", "_buffers", "_modules")
_HOOKS = ("_hooks", "_hooks_with_kwargs", "_hooks_always_called")
_SIMPLE = (int, float, bool, complex, str)
_CONTAINERS = (dict, list, tuple, set, deque, types.CellType)
_FUNCTIONS = (types.FunctionType, types.MethodType)
_OWNERS = (torch.nn.Module, *_CONTAINERS, *_FUNCTIONS)
# Objects of these packages other than modules hold settings and bookkeeping that steps do not change.
_LIBRARIES = {
    "torch", "transformers", "accelerate", "datasets", "tokenizers", "huggingface_hub", "peft", "safetensors", "numpy",
    "pyarrow", "pandas", "tqdm", "tensorboard", "wandb", "mlflow", "optuna", "asrconfig_go",
}  # fmt: skip
GENERATORS = (torch.Generator, np.random.Generator, np.random.RandomState, random.Random)
ABSENT = object()


@dataclass
class Reachable:
    """Objects with their paths: ``owners`` of attributes or elements, tensors, random generators, iterators."""

    owners: list[tuple[str, Any]] = field(default_factory=list)
    tensors: list[tuple[str, torch.Tensor]] = field(default_factory=list)
    generators: list[tuple[str, Any]] = field(default_factory=list)
    iterators: list[str] = field(default_factory=list)
    leaves: list[torch.Tensor] = field(default_factory=list)
    """The tensors among them that autograd gives gradients."""


def reachable(roots: Mapping[str, Any], weights: set[int]) -> Reachable:
    """Find all objects that the named ``roots`` hold; tensors with an ``id`` in ``weights`` are left out."""
    result, visited = Reachable(), set[int]()
    stack = [(name, root, 0) for name, root in reversed(list(roots.items()))]
    root_ids = {id(root) for root in roots.values()}
    while stack:
        path, value, depth = stack.pop()
        if id(value) in visited or isinstance(value, _SIMPLE) or value is None:
            continue
        visited.add(id(value))
        if isinstance(value, torch.Tensor):
            if id(value) not in weights:
                result.tensors.append((path, value))
                if value.is_leaf and value.requires_grad:
                    result.leaves.append(value)
        elif isinstance(value, GENERATORS):
            result.generators.append((path, value))
        elif isinstance(value, Iterator) and not isinstance(value, io.IOBase):
            result.iterators.append(path)
        elif depth <= _MAX_DEPTH and (id(value) in root_ids or _is_owner(value) or isinstance(value, _OWNERS)):
            if not isinstance(value, _FUNCTIONS):
                result.owners.append((path, value))
            if isinstance(value, torch.nn.Module) and value._buffers:
                result.owners.append((path, value._buffers))
            child_depth = depth if isinstance(value, torch.nn.Module) else depth + 1
            stack += [(name, child, child_depth) for name, child in reversed(list(_children(path, value)))]
    return result


def _children(path: str, value: object) -> Iterator[tuple[str, Any]]:
    if isinstance(value, _FUNCTIONS):
        yield from _variables(path, value)
    elif isinstance(value, types.CellType):
        yield path, content(value)
    elif isinstance(value, _CONTAINERS):
        elements: Any = value
        if len(elements) <= _MAX_ELEMENTS:
            named = elements.items() if isinstance(value, dict) else enumerate(elements)
            yield from ((f"{path}[{key!r}]", element) for key, element in named)
    elif isinstance(value, torch.nn.Module):
        for part in _MODULE_PARTS:
            yield from ((f"{path}.{name}", child) for name, child in vars(value)[part].items() if child is not None)
        for name, child in vars(value).items():
            if name not in _MODULE_PARTS and not name.endswith(_HOOKS):
                yield f"{path}.{name}", child
    else:
        yield from ((f"{path}.{name}", child) for name, child in vars(value).items())
        if _is_owner(value):  # not the Trainer's own methods
            functions = [f for kind in type(value).__mro__ if _is_users(kind) for f in vars(kind).values()]
            yield from ((path, generator) for f in functions for generator in _global_generators(f))


def _variables(path: str, function: Any) -> Iterator[tuple[str, Any]]:
    """What a user's function keeps between its calls: its object, closure variables and global generators."""
    if (owner := getattr(function, "__self__", None)) is not None:
        yield f"{path}.self", owner
    function = getattr(function, "__func__", function)
    if _is_users(function):
        names = function.__code__.co_freevars
        yield from ((f"{path}.{name}", cell) for name, cell in zip(names, function.__closure__ or (), strict=True))
        yield from ((path, generator) for generator in _global_generators(function))


def _global_generators(function: object) -> Iterator[Any]:
    """The random generators among the global variables that a function reads."""
    if isinstance(function, types.FunctionType):
        values = (function.__globals__.get(name) for name in function.__code__.co_names)
        yield from (value for value in values if isinstance(value, GENERATORS))


def _is_users(definition: object) -> bool:
    """Whether a class or function is defined by the user, not by a library."""
    package = str(getattr(definition, "__module__", "")).partition(".")[0]
    return (package not in _LIBRARIES and package not in sys.stdlib_module_names) or package == "__main__"


def _is_owner(value: object) -> bool:
    """Whether it is an object of a user's class, whose attributes a step may change."""
    has_attributes = isinstance(getattr(value, "__dict__", None), dict)
    return has_attributes and _is_users(type(value)) and not isinstance(value, torch.optim.Optimizer)


def attributes_of(owner: object) -> dict[Any, Any] | None:
    """The live attributes or entries of an owner; None of a sequence or a set."""
    if isinstance(owner, dict):
        return owner
    return None if isinstance(owner, _CONTAINERS) else vars(owner)


def content(owner: Any) -> Any:
    """A shallow copy of a sequence or a set, or the length of one with more than 1000 elements; a cell's value."""
    if isinstance(owner, types.CellType):
        return _in_cell(owner)
    if isinstance(owner, tuple):
        return owner
    return len(owner) if len(owner) > _MAX_ELEMENTS else copy.copy(owner)


def put_content(owner: Any, before: Any) -> bool:
    """Put back what ``content`` returned, and return whether that was possible; a long list that grew is shortened."""
    if isinstance(owner, types.CellType):
        if before is not ABSENT:
            owner.cell_contents = before
    elif isinstance(before, int):
        if not isinstance(owner, list) or len(owner) < before:
            return len(owner) == before
        del owner[before:]
    elif not isinstance(owner, tuple) and differs(owner, before):
        owner.clear()
        (owner.update if isinstance(owner, set) else owner.extend)(before)
    return True


def differs(owner: Any, before: Any) -> bool:
    """Whether a sequence, set or cell holds other objects than ``before``, which ``content`` returned."""
    if isinstance(owner, types.CellType):
        return not same(_in_cell(owner), before)
    if isinstance(before, int):
        return len(owner) != before
    if isinstance(owner, set):
        return bool(owner != before)
    return len(owner) != len(before) or not all(map(same, owner, before))


def _in_cell(cell: types.CellType) -> Any:
    """The value of a closure's variable; ``ABSENT`` before it has one."""
    try:
        return cell.cell_contents
    except ValueError:
        return ABSENT


def same(one: object, other: object) -> bool:
    """Whether two values are one object, or equal numbers or texts."""
    if one is other:
        return True
    return type(one) is type(other) and isinstance(one, _SIMPLE) and (one == other or (one != one and other != other))


def generator_state(generator: Any) -> Any:
    """The state of one of ``GENERATORS``."""
    if isinstance(generator, np.random.Generator):
        return generator.bit_generator.state
    if isinstance(generator, random.Random):
        return generator.getstate()
    return generator.get_state()


def same_state(one: Any, other: Any) -> bool:
    """Whether two values of ``generator_state`` are equal."""
    if isinstance(one, torch.Tensor):
        return bool(torch.equal(one, other))
    if isinstance(one, dict):
        return all(same_state(value, other[name]) for name, value in one.items())
    if isinstance(one, tuple):
        return all(map(same_state, one, other))
    return bool(np.array_equal(one, other))


def put_generator_state(generator: Any, state: Any) -> None:
    """Put back what ``generator_state`` returned."""
    if isinstance(generator, np.random.Generator):
        generator.bit_generator.state = state
    elif isinstance(generator, random.Random):
        generator.setstate(state)
    else:
        generator.set_state(state)
