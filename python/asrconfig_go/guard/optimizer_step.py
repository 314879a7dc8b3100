"""Retries the optimizer's step when it runs out of GPU memory, if that is exact.

The first step makes the optimizer's state, twice the weights' memory for Adam; each step with ``foreach`` makes
temporaries as large as the weights. One that fails before anything was written can be repeated. One that fails half
way cannot, unless it was the first: then the weights were kept on the CPU, and there was no state. So the first step is
the exact one to fail in, and it is the likely one: the others need no more memory than it did.
"""

from __future__ import annotations

import functools
import operator
import os
import types
import weakref
from collections.abc import Callable
from typing import Any

from .._base.errors import InfeasiblePlanError
from .._base.out_of_memory import classify, clear_frames, first_line, free_memory, note
from .._base.override import override
from .evaluation_loop import Happened
from .oom_snapshots import OomSnapshots

_version: Callable[[Any], int] = operator.attrgetter("_version")
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
        inner = getattr(self._optimizer, "optimizer", self._optimizer)
        listed = _Listed(inner)

        @functools.wraps(original)  # schedulers look for their own mark on it
        def step(_: Any, *args: Any, **kwargs: Any) -> Any:
            before = _Before(listed.now(), inner, self._first)
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
                    before.done()
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


class _Written:
    """What a step of an optimizer writes to: weights, and the tensors of its state."""

    def __init__(self, optimizer: Any) -> None:
        self._optimizer, self._state, self._groups = optimizer, optimizer.state, optimizer.param_groups
        self._counts = self._count()
        self.weights = [p for group in self._groups for p in group["params"]]
        states = [(p, self._state.get(p) or {}) for p in self.weights]
        self.had_state = {id(p) for p, state in states if state}
        self.of_state = [v for _, state in states for v in state.values() if hasattr(v, "_version")]
        self.tensors = [*self.weights, *self.of_state]
        steps = [state.get("step") for _, state in states if state] if _counts_first(optimizer) else [None]
        counted = all(hasattr(step, "_version") for step in steps)
        self._watched = [*self.weights, *steps] if counted else self.tensors
        some = [state for _, state in states if state]
        self.counted = some if some and _numbers(some[0]) else []  # in numbers: then for all weights
        self.is_old = False
        """Whether it was listed in an earlier step."""
        self._after: tuple[int, int] | None = None

    def _count(self) -> tuple[int, ...]:
        return (len(self._state), *(len(group["params"]) for group in self._groups))

    def is_current(self) -> bool:
        """Whether nothing was added or loaded since; a state that is empty would be filled without being one more."""
        optimizer = self._optimizer
        same = self._state is optimizer.state and self._groups is optimizer.param_groups
        return same and self._counts == self._count()

    def is_whole(self) -> bool:
        """Whether no tensor was replaced since it was listed; what a weight without state has been given counts not."""
        if not self.is_old:
            return True
        now, known = _Written(self._optimizer), set(map(id, self.tensors))
        made = (self._state.get(p) or {} for p in now.weights if id(p) not in self.had_state)
        known.update(id(value) for state in made for value in state.values())
        return all(id(tensor) in known for tensor in now.tensors)

    def versions(self) -> int:
        """Grows when a step writes to any of the tensors, as the counter of each does."""
        return sum(map(_version, self._watched))

    def before(self) -> int:
        """``versions`` as they were after the last step: whoever has written to weights since, has to the first one."""
        if self._after is None or self._after[0] != self.weights[0]._version:
            return self.versions()
        return self._after[1]

    def after(self) -> None:
        """A step is over: its tensors are still in the processor's cache, where they are read five times as fast."""
        self._after = self.weights[0]._version, self.versions()


class _Listed:
    """Lists what an optimizer writes to anew in each step, until that has twice been the same; some replace tensors."""

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer
        self._lasting: _Written | None = None
        self._seen: list[weakref.ref[Any]] = []  # of its state; what is replaced must not be kept

    def now(self) -> _Written:
        """What the next step writes to."""
        if self._lasting is not None and self._lasting.is_current():
            self._lasting.is_old = True
            return self._lasting
        found = _Written(self._optimizer)
        seen, self._seen = self._seen, list(map(weakref.ref, found.of_state))
        same = len(seen) == len(found.of_state) > 0 and all(a() is b for a, b in zip(seen, found.of_state, strict=True))
        self._lasting = found if same and all(self._optimizer.state.values()) else None
        return found


class _Before:
    """Weights and state before a step: by their version counters, and in the first step as a copy of the weights."""

    def __init__(self, written: _Written, optimizer: Any, first: bool) -> None:
        self._optimizer, self._written, self._versions = optimizer, written, written.before()
        # Numbers grow before anything is allocated: steps of Adafactor, what Prodigy keeps in its groups.
        self._owned = [(owner, dict(owner)) for owner in (vars(optimizer), *optimizer.param_groups)]
        self._owned += [(state, _numbers(state)) for state in written.counted]  # its tensors may be replaced
        self._copies: list[tuple[Any, Any]] | None = None
        if first and not written.had_state:
            used = [p for p in written.weights if p.grad is not None]
            if fits_on_host(used):
                self._copies = [(p, p.detach().to("cpu", copy=True)) for p in used]

    def done(self) -> None:
        """The step is over."""
        if self._written.is_old:
            self._written.after()

    def can_restore(self) -> bool:
        """Whether everything is, or can be made, what it was."""
        return self._copies is not None or (self.is_untouched() and self._written.is_whole())

    def is_untouched(self) -> bool:
        """Whether nothing has been written to."""
        return self._written.versions() == self._versions

    def restore(self) -> None:
        """Drop state that the failed step made, and put the weights back where it changed them."""
        import torch

        for p in self._written.weights:
            if id(p) not in self._written.had_state:
                self._optimizer.state.pop(p, None)
        for owner, owned in self._owned:
            numbers = _numbers(owned)
            for name in set(_numbers(owner)) - set(numbers):
                del owner[name]
            owner.update(numbers)
        with torch.no_grad():
            for p, value in self._copies or ():
                p.copy_(value)


def _counts_first(optimizer: Any) -> bool:
    """Whether a step grows the tensor ``step`` of a weight before it writes to other state of it."""
    import torch

    return type(optimizer) in (torch.optim.Adam, torch.optim.AdamW)


def _numbers(owner: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in owner.items() if isinstance(value, (int, float))}


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
