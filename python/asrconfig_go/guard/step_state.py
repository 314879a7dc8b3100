"""What a step changes besides weights and gradients, put back before a batch is computed again.

While nothing fails, a step costs the states of its random generators and the values of the attributes that steps are
known to change: references, no copies. What they change is learnt by comparing all that can be reached before and
after the first, second, fourth, eighth … step. Of tensors that are changed in place the version counters are noted,
which tell how often; their former values are gone. What cannot be put back is named.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from traceback import walk_tb
from types import CellType
from typing import Any, Literal

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from .._core.random_state import cpu_state, gpu_states_in_use, set_cpu_state, set_gpu_states
from .loop import Before, Key, Loop
from .reachable_state import (
    ABSENT,
    Reachable,
    attributes_of,
    content,
    differs,
    generator_state,
    put_content,
    put_generator_state,
    reachable,
    same,
    same_state,
)

SMALL = 1 << 14  # values of a tensor that may be copied, or kept alive, wherever it is


@dataclass
class InPlace:
    """A tensor that steps may change in place: its ``value`` now, and how often a step that failed wrote to it."""

    path: str
    tensor: torch.Tensor
    value: torch.Tensor
    writes: int


class StepState:
    """The state of one training loop's steps."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self.forget()

    def forget(self) -> None:
        """Another training begins."""
        self._keys: dict[tuple[int, Any], Key] = {}
        self._tensors: dict[int, tuple[str, torch.Tensor]] = {}
        self._generators: list[tuple[str, Any]] = []
        self._draws: dict[int, Literal["each micro-batch", "each clip"]] = {}
        self._has_gpu = True
        self.has_learnt = False
        """Whether what a step changes was looked for, in one at least."""
        self.leaves: list[torch.Tensor] = []
        """Tensors that autograd gives gradients and the optimizer does not have."""

    def before(self, full: bool) -> Before:
        """Note what there is before a step; ``full``: everything, to learn what the step changes."""
        if full:
            self._has_gpu = torch.cuda.is_initialized()
        before = Before(cpu_state(), gpu_states_in_use() if self._has_gpu else [], full)
        if full:
            self._look(before)
        elif self._tensors:
            before.versions = [(path, t, t._version) for path, t in self._tensors.values()]
        if self._generators:
            before.generators = [(generator, generator_state(generator)) for _, generator in self._generators]
        if self._keys:
            before.values = [(key, _value(key)) for key in self._keys.values()]
        return before

    def _look(self, before: Before) -> None:
        everything = self._reachable()
        self._generators, self.leaves = everything.generators, everything.leaves
        for path, owner in everything.owners:
            attributes = attributes_of(owner)
            references = None if attributes is None else {name: _reference(v) for name, v in attributes.items()}
            before.contents.append((path, owner, content(owner) if references is None else references))
        before.versions = [(path, t, t._version) for path, t in everything.tensors]

    def learn(self, before: Before) -> None:
        """The step that came after ``before`` is over: what it has changed is noted from now on."""
        if before.is_full:
            self.has_learnt = True
            for key, _ in _changes(before):
                self._keys[id(key[1]), key[2]] = key
            for path, tensor, version in before.versions:
                if tensor._version != version:
                    self._tensors[id(tensor)] = path, tensor

    def put_back(self, first: Before, failed: Before, changed_before: bool = False) -> list[str]:
        """Put back what there was before the window's ``first`` step, but for tensors that were changed in place.

        ``failed`` is of the step that failed; ``changed_before`` restores only what successful steps have changed.
        Returns the paths of what cannot be put back.
        """
        set_gpu_states(first.gpu)
        set_cpu_state(first.random)
        for generator, state in first.generators:
            put_generator_state(generator, state)
        changes = _changes(first)
        if changed_before or failed is not first:  # between the steps the loop itself has changed its own state
            changes = (change for change in changes if (id(change[0][1]), change[0][2]) in self._keys)
        lost = [key[0] for key, value in [*first.values, *changes] if not _put(key, value)]
        return [*lost, *reachable(self._loop.roots(), set()).iterators]

    def _reachable(self) -> Reachable:
        """What the loop's objects hold besides the weights that its optimizer has."""
        return reachable(self._loop.roots(), set(map(id, [*self._loop.parameters(), *self.leaves])))

    def between(self, before: Before) -> None:
        """Put all but sequences back, so that the next micro-batch finds what the whole batch found."""
        for key, value in [*before.values, *_changes(before)]:
            if key[2] is not ABSENT or isinstance(key[1], CellType):
                _put(key, value)

    def generator_states(self) -> dict[int, Any]:
        """The states of the loop's own generators, by their ``id``."""
        return {id(generator): generator_state(generator) for _, generator in self._generators}

    def compare_draws(self, before: Before, behind: Mapping[int, Any]) -> None:
        """The first micro-batch of a batch is over; ``behind`` are the states that the whole batch had left.

        A generator that is in the same state now draws as often for a micro-batch as for its batch.
        """
        for generator, state in before.generators:
            now, batch_state = generator_state(generator), behind.get(id(generator))
            if batch_state is not None and not same_state(batch_state, state) and not same_state(now, state):
                self._draws[id(generator)] = "each micro-batch" if same_state(now, batch_state) else "each clip"

    def draw_again(self, before: Before) -> None:
        """Another micro-batch of the batch follows: it draws what the whole batch drew, as the first one did."""
        for generator, state in before.generators:
            if self._draws.get(id(generator)) != "each clip":
                put_generator_state(generator, state)

    def other_draws(self, before: Before) -> list[str]:
        """The generators that may have drawn other numbers for micro-batches than for the batch that they make up."""
        paths = {id(generator): path for path, generator in self._generators}
        return [
            paths.get(id(generator), "a generator")
            for generator, state in before.generators
            if self._draws.get(id(generator)) != "each micro-batch"
            and not same_state(generator_state(generator), state)
        ]

    def tensor_attributes(self, before: Before) -> dict[str, torch.Tensor]:
        """The tensors that were added, or have replaced others, since ``before``, by path."""
        values = {path: (attributes_of(owner) or {}).get(name) for (path, owner, name), _ in _changes(before)}
        return {path: value for path, value in values.items() if isinstance(value, torch.Tensor)}

    def changes(self, before: Before) -> dict[str, Any]:
        """What a step has changed of what was noted ``before``, as it is now: of sequences copies."""
        keys = [key for key, value in before.values if _is_changed(key, value)] + [key for key, _ in _changes(before)]
        values = {key[0]: _value(key) for key in keys}
        return {path: content(v) if isinstance(v, list | set | deque) else v for path, v in values.items()}

    def watch(self, entries: list[InPlace]) -> None:
        """Steps change these tensors in place."""
        self._tensors.update({id(entry.tensor): (entry.path, entry.tensor) for entry in entries})

    def unseen(self, noted: Before, replayed: Before) -> list[str]:
        """What a replay changed that was not ``noted`` before the window: the failed step may have changed it, too."""
        if noted.is_full:
            return []
        places = {(id(key[1]), key[2]) for key, _ in noted.values} | {(tensor, None) for tensor in self.writes(noted)}
        changed = [((id(key[1]), key[2]), key[0]) for key, _ in _changes(replayed)]
        changed += [((id(t), None), path) for path, t, version in replayed.versions if t._version != version]
        generators = {id(generator) for generator, _ in noted.generators}
        drawn = [path for path, generator in self._generators if id(generator) not in generators]
        return [path for place, path in changed if place not in places] + drawn

    def copies(self, failed: Before | None = None, changed_before: bool = False) -> list[InPlace]:
        """Copies of the tensors that a step may change in place: small ones, and those that it is known to change.

        Large tensors of other modules than the loop's model, such as averages of its weights, are copied, too.
        ``changed_before`` copies only what steps are known to change; ``failed`` is of a step that failed, whose writes
        are counted.
        """
        if changed_before:
            tensors = list(self._tensors.values())
        else:
            model = self._loop.model
            own = {id(t) for t in (*model.parameters(), *model.buffers())} - set(self._tensors)
            everything = self._reachable().tensors
            tensors = [(path, t) for path, t in everything if t.numel() <= SMALL or id(t) not in own]
        counts = self.writes(failed) if failed else {}
        return [InPlace(path, t, _copy(t), counts.get(id(t), 0)) for path, t in tensors]

    def writes(self, before: Before) -> dict[int, int]:
        """How often tensors were written to since ``before``, by ``id``.

        Kernels of batch normalisation write to running statistics behind their version counters, right after their
        module has counted the batch: its count says how often.
        """
        counts = {id(t): t._version - version for _, t, version in before.versions}
        for _, norm in batch_norms(self._loop.model):
            if id(norm.num_batches_tracked) in counts:
                batches = counts[id(norm.num_batches_tracked)] - (norm is before.interrupted)
                for buffer in (norm.running_mean, norm.running_var):
                    counts[id(buffer)] = max(batches, counts.get(id(buffer), 0))
        return counts

    def statistics(self) -> set[int]:
        """The tensors of batch normalisation, by ``id``: a forward in training mode writes to them, and reads none."""
        norms = batch_norms(self._loop.model)
        return {id(buffer) for _, norm in norms for buffer in norm.buffers(recurse=False)}


_batch_norms: weakref.WeakKeyDictionary[torch.nn.Module, list[tuple[str, _BatchNorm]]] = weakref.WeakKeyDictionary()


def batch_norms(model: torch.nn.Module) -> list[tuple[str, _BatchNorm]]:
    """The layers that normalise over the clips of a batch, with their names; searched once for each model."""
    if model not in _batch_norms:
        _batch_norms[model] = [(name, m) for name, m in model.named_modules() if isinstance(m, _BatchNorm)]
    return _batch_norms[model]


def interrupted_norm(error: BaseException) -> _BatchNorm | None:
    """The batch normalisation whose forward raised ``error``, after it had counted the batch."""
    frames = (frame for frame, _ in walk_tb(error.__traceback__) if frame.f_code is _BatchNorm.forward.__code__)
    return next((frame.f_locals.get("self") for frame in frames), None)


def put_values(copies: list[InPlace]) -> None:
    """Put back the tensors that have other values than their copies."""
    with torch.no_grad():
        for entry in copies:
            if not _equal(entry.tensor, entry.value):
                entry.tensor.copy_(entry.value)


def changed_values(copies: list[InPlace]) -> dict[str, torch.Tensor]:
    """The tensors that have other values than their copies, by path, as they are now."""
    return {e.path: _copy(e.tensor) for e in copies if not _equal(e.tensor, e.value)}


def same_value(one: object, other: object) -> bool:
    """Whether two values are the same object, equal numbers or texts, equal tensors, or lists of these."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return _equal(one, other)
    if isinstance(one, list | deque) and isinstance(other, list | deque):
        return len(one) == len(other) and all(map(same_value, one, other))
    return same(one, other) or (isinstance(one, weakref.ref) and isinstance(other, weakref.ref))


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    """A copy in host memory, as the GPU's has just run out."""
    return tensor.detach().to("cpu", copy=True)


def _equal(tensor: torch.Tensor, value: torch.Tensor) -> bool:
    here = tensor.detach().to(value.device)
    if here.shape != value.shape or here.dtype != value.dtype:
        return False
    return bool(torch.equal(here, value) or torch.allclose(here, value, rtol=0, atol=0, equal_nan=True))


def _reference(value: object) -> Any:
    """A weak reference to a large tensor, so that its memory can be freed; other values as they are."""
    return weakref.ref(value) if isinstance(value, torch.Tensor) and value.numel() > SMALL else value


def _value(key: Key) -> Any:
    attributes = attributes_of(key[1])
    return content(key[1]) if attributes is None else _reference(attributes.get(key[2], ABSENT))


def _changes(before: Before) -> Iterator[tuple[Key, Any]]:
    """The keys whose values have changed, with their former values."""
    for path, owner, former in before.contents:
        attributes = attributes_of(owner)
        if attributes is None:
            if differs(owner, former):
                yield (path, owner, ABSENT), former
            continue
        for name in {**former, **attributes}:
            # A module keeps its hooks and what transformers notes of them, or it would install them a second time.
            of_hooks = isinstance(owner, torch.nn.Module) and "_hooks" in str(name)
            if not of_hooks and not _is(attributes.get(name, ABSENT), former.get(name, ABSENT)):
                yield (f"{path}.{name}", owner, name), former.get(name, ABSENT)


def _is_changed(key: Key, former: object) -> bool:
    attributes = attributes_of(key[1])
    return differs(key[1], former) if attributes is None else not _is(attributes.get(key[2], ABSENT), former)


def _is(now: object, former: object) -> bool:
    return same(now, former() if isinstance(former, weakref.ref) else former)


def _put(key: Key, former: object) -> bool:
    """Put one value back; returns whether that was possible."""
    _, owner, name = key
    attributes = attributes_of(owner)
    if attributes is None:
        return put_content(owner, former)
    value = former() if isinstance(former, weakref.ref) else former
    if value is None and isinstance(former, weakref.ref):
        return False
    if value is ABSENT:
        attributes.pop(name, None)
    elif not same(attributes.get(name, ABSENT), value):
        attributes[name] = value
    return True
