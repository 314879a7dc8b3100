"""Optimizer steps: retried when they run out of GPU memory, if that is exact; and the norms of their gradients.

The first step makes the optimizer's state, twice the weights' memory for Adam; each step with ``foreach`` makes
temporaries as large as the weights. One that fails before it has written to weights or state can be repeated. The first
one can be completed, too, where each weight was either updated as a whole or not at all. Any other that fails half way
cannot: training then continues from a checkpoint. The version counters of tensors tell, which grow with each change in
place.
"""

from __future__ import annotations

import copy
import functools
import math
import statistics
import types
from collections import defaultdict, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from .._core.out_of_memory import add_note, clear_frames, first_line, free_memory, is_gpu_oom
from .._core.training_session import override, replace_method
from ..errors import InfeasiblePlanError
from .loop import version_of
from .micro_batches import Attempts

if TYPE_CHECKING:
    from transformers import Trainer

_FACTOR = 10.0  # times the median of the recent steps
_HALF_DONE = "the optimizer's step was half done: continue from the last checkpoint, as manager.train does"
RECENT, LEAST = 50, 20  # steps, and how many of them are needed


class OptimizerSteps:
    """``optimizer.step()`` of one loop, for whichever optimizer it has; retries are noted among its ``attempts``."""

    def __init__(self, attempts: Attempts) -> None:
        self._attempts = attempts
        self._optimizer: torch.optim.Optimizer | None = None
        self._undo: Callable[[], None] = lambda: None

    def follow(self, optimizer: torch.optim.Optimizer, trainer: Trainer | None = None) -> None:
        """A training begins, with this optimizer, that of ``trainer`` if it is not of a loop of one's own."""
        if optimizer is not self._optimizer:
            self.remove()
            self._optimizer = optimizer
            # Bound, as a method is: a scheduler that is made for it looks at what it belongs to.
            step = types.MethodType(self._stepping(optimizer), optimizer)
            self._undo = (
                replace_method(trainer, "guard", "optimizer.step", step)
                if trainer is not None
                else override(optimizer, "step", step)
            )

    def remove(self) -> None:
        """Leave the optimizer as it was found."""
        self._undo()
        self._optimizer, self._undo = None, lambda: None

    def _stepping(self, optimizer: torch.optim.Optimizer) -> Callable[..., Any]:
        original, inner = optimizer.step, getattr(optimizer, "optimizer", optimizer)

        @functools.wraps(original)  # schedulers look for their own mark on it
        def step(_: object, *args: object, **kwargs: object) -> Any:
            done = list[tuple[Any, Any]]()
            try:
                for one_by_one in (False, True):
                    before = _Before(inner)
                    try:
                        return original(*args, **kwargs)
                    except Exception as error:
                        saved = self._attempts.snapshot("optimizer", error)
                        if not is_gpu_oom(error):
                            raise
                        if before.was_written() and not before.find_completed():
                            add_note(error, _HALF_DONE)
                            raise
                        clear_frames(error)
                        text = first_line(error)
                    done += before.restore()
                    free_memory()
                    for group in inner.param_groups if one_by_one else ():
                        # Slower, with the temporaries of one parameter at a time; the values are equal up to rounding.
                        if "foreach" in group and not group.get("fused"):
                            group["foreach"] = False
                    self._attempts.note("optimizer", text, saved)
                try:
                    return original(*args, **kwargs)
                except Exception as error:
                    if not is_gpu_oom(error):
                        raise
                    raise InfeasiblePlanError(
                        f"the optimizer's step ran out of GPU memory: {first_line(error)}",
                        "a smaller micro-batch does not help here: use an 8-bit optimizer or Adafactor, freeze layers, "
                        "or LoRA",
                    ) from error
            finally:
                for p, gradient in done:
                    p.grad = gradient

        return step


class GradientNorms:
    """Keeps the norms that clipping the gradients of a loop returns, once in each optimizer step.

    A norm is copied to the host while the optimizer runs, and read when the next window begins: nothing waits for it.
    """

    def __init__(self) -> None:
        self._recent: deque[float] = deque(maxlen=RECENT)
        self._least = 0.0  # of them, or below
        self._host: torch.Tensor | None = None
        self._event: torch.cuda.Event
        self._undo: Callable[[], None] = lambda: None
        self.newest: float | torch.Tensor | None = None
        """The norm of the newest step, unless it is known to be usual; until ``look``."""
        self.scaled = False
        """Whether a loss scaler skips steps whose gradients overflow, as it is meant to."""
        self.clips_on_cpu = False
        """Whether gradients are clipped, and their norm is known at once."""
        self.not_finite: Callable[[], None] = lambda: None
        """Called when such a norm is not finite, before weights change."""

    def follow(self, trainer: Trainer) -> None:
        """Note what ``clip_grad_norm_`` of this Trainer's accelerator returns."""
        self.remove()
        accelerator = trainer.accelerator
        scaler = getattr(accelerator, "scaler", None)
        self.scaled = scaler is not None and bool(scaler.is_enabled())
        clip = functools.partial(self._clip, accelerator.clip_grad_norm_)
        self._undo = replace_method(trainer, "guard", "accelerator.clip_grad_norm_", clip)

    def _clip(self, original: Callable[..., Any], *args: object, **kwargs: object) -> Any:
        norm = original(*args, **kwargs)
        self.note(norm)
        return norm

    def remove(self) -> None:
        """Leave the accelerator as it was found."""
        self._undo()
        self._undo, self.newest, self.clips_on_cpu = (lambda: None), None, False
        self._recent.clear()
        self._least = 0.0

    def note(self, norm: float | torch.Tensor | None) -> None:
        """The norm of the optimizer step that is being made."""
        if isinstance(norm, torch.Tensor) and norm.is_cuda:
            if self._host is None:
                self._host, self._event = torch.empty((), pin_memory=True), torch.cuda.Event()
            self.newest = self._host.copy_(norm.detach().reshape(()), non_blocking=True)
            self._event.record()
        elif norm is not None:
            self.clips_on_cpu, norm = True, float(norm)
            if norm <= _FACTOR * self._least:  # then it is not far above their median either
                self._recent.append(norm)
                self._least = min(norm, self._least)
                return
            self.newest = norm
            if not math.isfinite(norm) and not self.scaled:
                self.not_finite()

    def look(self) -> tuple[float, float] | None:
        """The norm of the step that is over, and the median of those before, where that is unusual; else None."""
        newest, self.newest = self.newest, None
        if newest is None:
            return None
        if self._host is not None and newest is self._host:
            self._event.synchronize()
        norm = float(newest)
        if not math.isfinite(norm):
            return None if self.scaled else (norm, math.nan)
        recent, usual = self._recent, math.inf
        if len(recent) >= LEAST and norm > _FACTOR * min(recent):
            usual = statistics.median(recent)
        recent.append(norm)
        self._least = min(recent)
        return (norm, usual) if norm > _FACTOR * usual > 0 else None


class _Before:
    """The state of an optimizer before a step: version counters, and the numbers that steps count with.

    torch's own optimizers step the weights of a group in their order, or all at once, so that the first one's state
    shows whether anything was written; of others all state is looked at.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        state = optimizer.state
        self._optimizer, self._had_states = optimizer, len(state)
        self._numbers: list[tuple[dict[str, Any], dict[str, Any]]] = []
        if type(optimizer).__module__.startswith("torch.optim."):
            tensors: list[Any] = []
            for group in optimizer.param_groups:
                first = next((p for p in group["params"] if p.grad is not None), None)
                tensors += [] if first is None else [first, *_state_tensors(optimizer, [first])]
        else:
            weights = _all_weights(optimizer)
            tensors = [*weights, *_state_tensors(optimizer, weights)]
            # Numbers grow before anything is allocated: steps of Adafactor, what Prodigy keeps in its groups.
            owners = (vars(optimizer), *optimizer.param_groups, *state.values())
            self._numbers = [(owner, _numbers(owner)) for owner in owners]
        self._tensors, self._versions = tensors, list(map(version_of, tensors))
        self._weights = [] if state else [(p, version_of(p)) for p in _all_weights(optimizer) if p.grad is not None]
        self._completed: list[Any] = []

    def was_written(self) -> bool:
        """Whether weights or state were written to, or a tensor of the state was replaced."""
        if list(map(version_of, self._tensors)) != self._versions:
            return True
        made = _state_tensors(self._optimizer, self._made())
        if any(map(version_of, made)):  # a fused step changes weights behind their counters, and its state first
            return True
        weights = _all_weights(self._optimizer)
        now = set(map(id, [*weights, *_state_tensors(self._optimizer, weights)]))
        return any(id(t) not in now for t in self._tensors)

    def _made(self) -> list[Any]:
        """The weights whose state the failed step has made."""
        return list(self._optimizer.state)[self._had_states :]

    def find_completed(self) -> bool:
        """Whether a first step has updated some weights as a whole, and written to no others.

        How often a whole update writes to a weight and to its state is seen by one of a tensor of the same kind.
        """
        own = type(self._optimizer)
        kind = next((k for k in own.__mro__ if k.__module__.startswith("torch.optim.")), torch.optim.Optimizer)
        written = [(p, version_of(p) - version) for p, version in self._weights if version_of(p) != version]
        if kind in (torch.optim.Optimizer, torch.optim.LBFGS):
            return False
        for p, times in written:
            expected = _whole_update(self._optimizer, kind, p)
            # A step of a user's class may write to weights itself: then their state has to show the update, too.
            if (times, _state_versions(self._optimizer, p)) != expected or not (expected[1] or kind is own):
                return False
        self._completed = [p for p, _ in written]
        return bool(written)

    def restore(self) -> list[tuple[Any, Any]]:
        """Drop state that the failed step made, and put numbers back.

        Weights that were updated as a whole keep theirs; their gradients are returned and taken aside, so that the step
        leaves them out.
        """
        completed = set(map(id, self._completed))
        for p in self._made():
            if id(p) not in completed:
                del self._optimizer.state[p]
        for owner, before in self._numbers:
            for name in set(_numbers(owner)) - set(before):
                del owner[name]
            owner.update(before)
        aside = [(p, p.grad) for p in self._completed]
        for p, _ in aside:
            p.grad = None
        return aside


def _all_weights(optimizer: torch.optim.Optimizer) -> list[Any]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def _state_tensors(optimizer: torch.optim.Optimizer, weights: list[Any]) -> list[Any]:
    states = (optimizer.state.get(p, {}) for p in weights)
    return [value for state in states for value in state.values() if isinstance(value, torch.Tensor)]


def _state_versions(optimizer: torch.optim.Optimizer, weight: torch.Tensor) -> dict[str, int]:
    """How often each tensor in the state of a weight was written to."""
    state = optimizer.state.get(weight, {})
    return {name: version_of(value) for name, value in state.items() if isinstance(value, torch.Tensor)}


def _whole_update(
    optimizer: torch.optim.Optimizer, kind: type[torch.optim.Optimizer], weight: torch.Tensor
) -> tuple[int, dict[str, int]]:
    """How often an optimizer's first step writes to a weight, and to the state that it creates."""
    group = next(group for group in optimizer.param_groups if any(p is weight for p in group["params"]))
    small = torch.zeros((1,) * weight.dim(), dtype=weight.dtype, device=weight.device, requires_grad=True)
    small.grad = torch.zeros_like(small)
    trial, version = copy.copy(optimizer), version_of(small)
    trial.state, trial.param_groups = defaultdict(dict), [{**group, "params": [small]}]
    kind.step(trial)
    return version_of(small) - version, _state_versions(trial, small)


def _numbers(owner: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in owner.items() if isinstance(value, (int, float))}
