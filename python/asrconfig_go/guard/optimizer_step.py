"""Retries the optimizer's step when it runs out of GPU memory, if that is exact.

The first step makes the optimizer's state, twice the weights' memory for Adam; each step with ``foreach`` makes
temporaries as large as the weights. One that fails before it has written to weights or state can be repeated. One that
fails half way cannot: training then continues from a checkpoint. The version counters of tensors tell, which grow with
each change in place.
"""

from __future__ import annotations

import functools
import operator
import os
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

from .._base.errors import InfeasiblePlanError
from .._base.out_of_memory import classify, clear_frames, first_line, free_memory, note
from .._base.override import override

_version: Callable[[Any], int] = operator.attrgetter("_version")
_HOST_SHARE = 4  # weights are copied if they take at most this part of the free host memory

Report = Callable[[str, str, str], None]
"""Called with the place, the error's text, and the file of its memory snapshot."""


class OptimizerSteps:
    """``optimizer.step()`` of one loop, for whichever optimizer it has."""

    def __init__(
        self, report: Report, snapshot: Callable[[str, Exception], str], weights_changed: Callable[[], bool]
    ) -> None:
        """``weights_changed`` is whether weights were written to since the accumulation window began."""
        self._report, self._snapshot, self._weights_changed = report, snapshot, weights_changed
        self._optimizer: Any = None
        self._undo: Callable[[], None] = lambda: None

    def follow(self, optimizer: Any) -> None:
        """A training begins, with this optimizer."""
        if optimizer is not self._optimizer:
            self.remove()
            self._optimizer = optimizer
            # Bound, as a method is: a scheduler that is made for it looks at what it belongs to.
            step = types.MethodType(self._stepping(optimizer.step), optimizer)
            self._undo = override(optimizer, "step", step)

    def remove(self) -> None:
        """Leave the optimizer as it was found."""
        self._undo()
        self._optimizer, self._undo = None, lambda: None

    def _stepping(self, original: Callable[..., Any]) -> Callable[..., Any]:
        inner = getattr(self._optimizer, "optimizer", self._optimizer)

        @functools.wraps(original)  # schedulers look for their own mark on it
        def step(_: Any, *args: Any, **kwargs: Any) -> Any:
            before = _Before(inner)
            for remedy in (_nothing_more, _one_by_one):
                try:
                    return original(*args, **kwargs)
                except Exception as error:
                    saved = self._snapshot("optimizer", error)
                    if not self._can_repeat(error, before):
                        raise
                    clear_frames(error)
                    text = first_line(error)
                before.restore()
                free_memory()
                remedy(inner)
                self._report("optimizer", text, saved)
            return _last(original, *args, **kwargs)

        return step

    def _can_repeat(self, error: Exception, before: _Before) -> bool:
        if classify(error)["class"] != "gpu_oom":
            return False
        if self._weights_changed() or before.was_written():
            note(error, "the optimizer's step was half done: continue from the last checkpoint, as manager.train does")
            return False
        return True


def _last(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    try:
        return original(*args, **kwargs)
    except Exception as error:
        if classify(error)["class"] != "gpu_oom":
            raise
        raise InfeasiblePlanError(
            f"the optimizer's step ran out of GPU memory: {first_line(error)}",
            "a smaller micro-batch does not help here: use an 8-bit optimizer or Adafactor, freeze layers, or LoRA",
        ) from error


class _Before:
    """The state of an optimizer before a step: version counters, and the numbers that steps count with.

    torch's own optimizers step the weights of a group in their order, or all at once, so that the first one's state
    shows whether anything was written; of others all state is looked at.
    """

    def __init__(self, optimizer: Any) -> None:
        self._optimizer, self._had_state = optimizer, list(optimizer.state)
        first_of_group = type(optimizer).__module__.startswith("torch.optim.")
        weights = _first_weights(optimizer) if first_of_group else self._had_state
        self._state = list(_state_tensors(optimizer, weights))
        self._versions = list(map(_version, self._state))
        # Numbers grow before anything is allocated: steps of Adafactor, what Prodigy keeps in its groups.
        owners = () if first_of_group else (vars(optimizer), *optimizer.param_groups, *optimizer.state.values())
        self._numbers = [(owner, _numbers(owner)) for owner in owners]

    def was_written(self) -> bool:
        """Whether state was written to, or a tensor of it was replaced."""
        if list(map(_version, self._state)) != self._versions:
            return True
        had = set(map(id, self._had_state))
        made = _state_tensors(self._optimizer, [p for p in self._optimizer.state if id(p) not in had])
        if any(map(_version, made)):  # fused steps change weights behind their counters, and count in their state first
            return True
        now = {id(t) for t in _state_tensors(self._optimizer, self._had_state)}
        return any(id(t) not in now for t in self._state)

    def restore(self) -> None:
        """Drop state that the failed step made, and put numbers back."""
        had = set(map(id, self._had_state))
        for p in [p for p in self._optimizer.state if id(p) not in had]:
            del self._optimizer.state[p]
        for owner, before in self._numbers:
            for name in set(_numbers(owner)) - set(before):
                del owner[name]
            owner.update(before)


def _first_weights(optimizer: Any) -> Iterator[Any]:
    for group in optimizer.param_groups:
        first = next((p for p in group["params"] if p.grad is not None), None)
        if first is not None:
            yield first


def _state_tensors(optimizer: Any, owners: Any) -> Iterator[Any]:
    for p in owners:
        state = optimizer.state.get(p) or {}
        yield from (value for value in state.values() if hasattr(value, "_version"))


def _numbers(owner: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in owner.items() if isinstance(value, (int, float))}


def fits_on_host(weights: list[torch.Tensor]) -> bool:
    """Whether a copy of them takes at most a quarter of the free host memory."""
    needed = sum(p.numel() * p.element_size() for p in weights)
    try:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):  # not known here
        return False
    return bool(needed * _HOST_SHARE <= free)


def _nothing_more(optimizer: Any) -> None:
    """The memory that was freed may be enough."""


def _one_by_one(optimizer: Any) -> None:
    """Parameter by parameter: slower, with the temporaries of one at a time. The values are the same up to rounding."""
    for group in optimizer.param_groups:
        if "foreach" in group and not group.get("fused"):
            group["foreach"] = False
