"""What a step changes besides weights: a model's buffers (statistics, power iterations, counters), plain attributes."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import torch

_SMALL = 1 << 14  # values; such buffers are always kept, larger ones once a forward is known to change them


Key = tuple[Any, str]  # an owner and the name of what it owns


class Saved:
    """Buffers: the tensors that they were, and their values."""

    def __init__(self, buffers: dict[Key, tuple[Any, Any]] | None = None) -> None:
        self.buffers = buffers or {}

    def restore(self) -> None:
        """Put all of it back; what a forward has replaced, too."""
        with torch.no_grad():
            for (module, name), (tensor, value) in self.buffers.items():
                module._buffers[name] = tensor
                tensor.copy_(value)


class ModelState:
    """That of one model, and how a forward changes it."""

    def __init__(self, model: Any) -> None:
        self.follow(model)

    def follow(self, model: Any) -> None:
        """Look at ``model`` from now on: a Trainer with ``model_init`` makes another for each training."""
        self._model = model
        self._buffers = [(m, name) for m in model.modules() for name, b in m._buffers.items() if b is not None]
        self._changing: set[Key] = set()
        self.varying: list[str] = []
        """Names of buffers that depend on which samples a batch holds; known after ``measure``."""

    def save(self, every: bool = False) -> Saved:
        """Copies of what a forward changes; of ``every`` buffer where that is not known yet."""
        found = Saved()
        for key in self._buffers:
            buffer = key[0]._buffers.get(key[1])
            if buffer is not None and (every or buffer.numel() <= _SMALL or key in self._changing):
                found.buffers[key] = (buffer, buffer.detach().clone())
        return found

    def measure(self, forwards: Sequence[Callable[[], object]]) -> None:
        """Find out what ``forwards`` of different batches change, each from the same state, which is put back."""
        before, outcomes = self.save(every=True), []
        for forward in forwards:
            try:
                forward()
                outcomes.append(self._changes(before))
            finally:
                before.restore()
        changed = {key for outcome in outcomes for key in outcome}
        self._changing |= changed
        names = {module: name for name, module in self._model.named_modules()}
        self.varying = sorted(
            f"{names[key[0]]}.{key[1]}".lstrip(".")
            for key in changed
            if any(not _same(outcome.get(key), outcomes[0].get(key)) for outcome in outcomes)
        )

    @staticmethod
    def _changes(before: Saved) -> dict[Key, Any]:
        found: dict[Key, Any] = {}
        for key, (_, value) in before.buffers.items():
            now = key[0]._buffers.get(key[1])
            if not _same(now, value):
                found[key] = None if now is None else now.detach().clone()
        return found


class Attributes:
    """Plain attributes of a Trainer and the modules of its model that a step sets: counts, cached tensors."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._known: set[Key] | None = None  # that steps set; None before the first one

    def now(self, every: bool = False) -> dict[Key, Any]:
        """Those that steps set, or all while that is not known."""
        if self._known is not None and not every:
            return {key: vars(key[0]).get(key[1], _ABSENT) for key in self._known}
        owners = [self._trainer, *self._trainer.model.modules()]
        return {(o, name): v for o in owners for name, v in vars(o).items() if type(v) in _PLAIN}

    def changed(self, before: dict[Key, Any]) -> dict[Key, Any]:
        """What is not as it was, with what it was."""
        return {
            key: before.get(key, _ABSENT) for key, v in self.now().items() if not _kept(before.get(key, _ABSENT), v)
        }

    def learn(self, before: dict[Key, Any]) -> None:
        """Steps set what has changed since ``before``, and what they are known to set; nothing else."""
        if self._known is None or self._known:
            self._known = {*(self._known or ()), *self.changed(before)}

    def put(self, before: dict[Key, Any], but_tensors: bool = False) -> None:
        """Restore what has changed."""
        for (owner, name), value in self.changed(before).items():
            if but_tensors and isinstance(vars(owner).get(name), torch.Tensor):
                continue
            if value is _ABSENT:
                owner.__dict__.pop(name, None)
            else:
                owner.__dict__[name] = value


_ABSENT = object()
_PLAIN = {type(None), int, float, torch.Tensor}


def _kept(before: Any, now: Any) -> bool:
    return before is now or (type(now) in (int, float) and type(before) is type(now) and before == now)


class Snapshot:
    """What a Trainer and the modules of its model own, and the contents of their lists, to leave no trace in them."""

    def __init__(self, trainer: Any) -> None:
        owners = [trainer, *trainer.model.modules()]
        self._owned = [(owner, dict(vars(owner))) for owner in owners]
        self._contents = [
            (value, copy.copy(value))
            for owner, owned in self._owned
            for name, value in owned.items()
            if type(value) in (list, dict, set, deque) and not (name.startswith("_") and owner is not trainer)
        ]

    def restore(self) -> None:
        """As it was; tensors that were changed in place stay changed."""
        for owner, owned in self._owned:
            for name in set(vars(owner)) - set(owned):
                del owner.__dict__[name]
            owner.__dict__.update(owned)
        for container, content in self._contents:
            if container != content:
                container.clear()
                (container.extend if hasattr(container, "extend") else container.update)(content)


def _same(a: Any, b: Any) -> bool:
    if not (isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)):
        return bool(a is b or (a is not None and b is not None and a == b))
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return bool(torch.equal(a, b) or (a.is_floating_point() and torch.allclose(a, b, rtol=0, atol=0, equal_nan=True)))
