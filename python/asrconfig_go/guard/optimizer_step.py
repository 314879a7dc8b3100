"""Retries the optimizer's step when it runs out of GPU memory, if that is exact.

The first step makes the optimizer's state, twice the weights' memory for Adam; each step with ``foreach`` makes
temporaries as large as the weights. One that fails before anything was written can be repeated. One that fails half
way cannot, unless it was the first: then the weights were kept on the CPU, and there was no state. So the first step is
the exact one to fail in, and it is the likely one: the others need no more memory than it did.
"""

from __future__ import annotations

import functools
import os
import types
from collections.abc import Callable
from typing import Any

from .._base.errors import InfeasiblePlanError
from .._base.out_of_memory import classify, clear_frames, first_line, free_memory, note
from .._base.override import override
from .evaluation_loop import Happened
from .oom_snapshots import OomSnapshots

_SHARE = 4  # the weights are kept if they take at most this part of the free host memory


class OptimizerSteps:
    """``optimizer.step()`` of one Trainer, for whichever optimizer it has."""

    def __init__(self, trainer: Any, happened: Happened, snapshots: OomSnapshots) -> None:
        self._trainer, self._happened, self._snapshots = trainer, happened, snapshots
        self._optimizer: Any = None
        self._first = True
        self._undo: Callable[[], None] = lambda: None

    def follow(self) -> None:
        """The Trainer makes its optimizer when training begins."""
        if self._trainer.optimizer is not self._optimizer:
            self.remove()
            self._optimizer, self._first = self._trainer.optimizer, True
            # Bound, as a method is: a scheduler that is made for it looks at what it belongs to.
            step = types.MethodType(self._stepping(self._optimizer.step), self._optimizer)
            self._undo = override(self._optimizer, "step", step)

    def remove(self) -> None:
        """Leave the optimizer as it was found."""
        self._undo()
        self._optimizer, self._undo = None, lambda: None

    def _stepping(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)  # schedulers look for their own mark on it
        def step(_: Any, *args: Any, **kwargs: Any) -> Any:
            inner = getattr(self._optimizer, "optimizer", self._optimizer)
            before = _Before(inner, self._first)
            for remedy in (_nothing_more, _one_by_one):
                try:
                    done = original(*args, **kwargs)
                except Exception as error:
                    saved = self._snapshots.take("optimizer", error)
                    if not self._can_repeat(error, before):
                        raise
                    clear_frames(error)
                    text = first_line(error)
                else:
                    # A gradient scaler skips steps: the first one that moves weights may be still to come.
                    self._first = self._first and before.is_untouched()
                    return done
                before.restore()
                free_memory()
                remedy(inner)
                self._happened("optimizer", text, saved)
            return self._last(original, *args, **kwargs)

        return step

    def _last(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        try:
            return original(*args, **kwargs)
        except Exception as error:
            if classify(error)["class"] != "gpu_oom":
                raise
            raise InfeasiblePlanError(
                f"the optimizer's step ran out of GPU memory: {first_line(error)}",
                "a smaller micro-batch does not help here: use an 8-bit optimizer or Adafactor, freeze layers, or LoRA",
            ) from error

    def _can_repeat(self, error: Exception, before: _Before) -> bool:
        if classify(error)["class"] != "gpu_oom":
            return False
        if not before.can_restore():
            note(error, "the optimizer's step was half done: continue from the last checkpoint, as manager.train does")
            return False
        return True


class _Before:
    """Weights and state before a step: by their version counters, and in the first step as a copy of the weights."""

    def __init__(self, optimizer: Any, first: bool) -> None:
        self._optimizer = optimizer
        self._weights = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        self._had_state = {id(p) for p in self._weights if optimizer.state.get(p)}
        self._versions = [(tensor, tensor._version) for tensor in self._tensors()]
        # Numbers grow before anything is allocated: steps of Adafactor, what Prodigy keeps in its groups.
        states = [optimizer.state[p] for p in self._weights if id(p) in self._had_state]
        counted = bool(states and _numbers(states[0]))  # one that counts in numbers does so for all weights
        owners = [vars(optimizer), *optimizer.param_groups, *(states if counted else ())]
        self._numbers = [(owner, _numbers(owner)) for owner in owners]
        self._copy: list[Any] | None = None
        if first and not self._had_state and fits_on_host(self._weights):
            self._copy = [p.detach().to("cpu", copy=True) for p in self._weights]

    def _tensors(self) -> list[Any]:
        states = (self._optimizer.state.get(p, {}) for p in self._weights if id(p) in self._had_state)
        return [*self._weights, *(v for state in states for v in state.values() if hasattr(v, "_version"))]

    def can_restore(self) -> bool:
        """Whether everything is, or can be made, what it was."""
        return self._copy is not None or self.is_untouched()

    def is_untouched(self) -> bool:
        """Whether nothing has been written to."""
        return all(tensor._version == version for tensor, version in self._versions)

    def restore(self) -> None:
        """Drop state that the failed step made, and put the weights back where it changed them."""
        import torch

        for p in self._weights:
            if id(p) not in self._had_state:
                self._optimizer.state.pop(p, None)
        for owner, numbers in self._numbers:
            for name in set(_numbers(owner)) - set(numbers):
                del owner[name]
            owner.update(numbers)
        if self._copy is not None:
            with torch.no_grad():
                for p, value in zip(self._weights, self._copy, strict=True):
                    p.copy_(value)


def _numbers(owner: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in owner.items() if isinstance(value, int | float)}


def fits_on_host(weights: list[Any]) -> bool:
    """Whether a copy of them takes at most a quarter of the free host memory."""
    needed = sum(p.numel() * p.element_size() for p in weights)
    try:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):  # not told here
        return False
    return bool(needed * _SHARE <= free)


def _nothing_more(optimizer: Any) -> None:
    """The memory that was freed may be enough."""


def _one_by_one(optimizer: Any) -> None:
    """Parameter by parameter: slower, with the temporaries of one at a time. The values are the same up to rounding."""
    for group in optimizer.param_groups:
        if "foreach" in group and not group.get("fused"):
            group["foreach"] = False
