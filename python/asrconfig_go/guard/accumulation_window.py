"""The accumulation window: the batches of one optimizer step, and what there was when it began."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from .._core.batches import shallow, tensors_of
from .loop import Batch, Before, Call, Loop, version_of
from .step_state import StepState

if TYPE_CHECKING:
    from .loss_rule import LossRule


class Window:
    """The accumulation window that a loop is in: from one optimizer step to the next."""

    def __init__(self, loop: Loop, rule: LossRule, state: StepState, fit: Callable[[Any], Any]) -> None:
        """``fit`` returns a batch as the model can train on it."""
        self._loop, self._rule, self._state, self._fit = loop, rule, state, fit
        self._may_change = True  # whether a step may change weights or its batch
        self._watched: list[torch.Tensor] = []  # weights that a step may change, listed when everything is looked at
        self._uncleared: list[torch.Tensor] = []
        self._number = 0
        self.begin(())

    def restart(self) -> None:
        """Another training begins."""
        self._number, self._watched, self._uncleared = 0, [], []
        self.begin(())

    def begin(self, batches: Sequence[Any]) -> None:
        """The loop has fetched the batches of the next optimizer step."""
        self.batches = batches
        self.calls: list[Call] = []
        self.planned = len(batches)
        self.total: float | torch.Tensor | None = None
        """What the loss of the window is divided by, once that was counted."""
        self.left_out: float | torch.Tensor | None = None
        """What of it was left out, a number or a tensor, if anything was."""
        self._gradients: list[tuple[Any, Any, int]] = []
        self._versions: list[int] = []

    def call(self, inputs: Batch, arguments: object = None) -> Call:
        """Note one more batch; with the first, what there is before the optimizer step."""
        first = not self.calls
        self._number += first
        # Everything is looked at before the first, second, fourth, eighth … optimizer step.
        looks = first and not self._number & (self._number - 1)
        before = self._state.before(looks)
        if looks:
            self._rule.has_hooks = self._loop.has_hooks()
            self._may_change = not self._rule.is_certain or self._rule.is_given
            self._watched = self._loop.parameters() if self._may_change else []
            self._uncleared = [*self._loop.uncleared(), *self._state.leaves]
        if first and self._watched:
            self._versions = list(map(version_of, self._watched))
        if first and self._uncleared:
            self._gradients = [(p, p.grad, p.grad._version) for p in self._uncleared if p.grad is not None]
        batch = inputs = self._fit(inputs)
        versions = list[tuple[torch.Tensor, int]]()
        if self._may_change:  # then it may take entries out of what it is given, too
            versions = [(tensor, tensor._version) for tensor in tensors_of(inputs)]
            inputs = shallow(inputs)
        call = Call(inputs, before, versions, self._fit, batch, arguments)
        self.calls.append(call)
        return call

    def place(self, call: Call) -> int | None:
        """Where a batch of the window is among those that the loader has delivered, the last being -1."""
        return next((i - self.planned for i, other in enumerate(self.calls) if other is call), None)

    @property
    def first(self) -> Before:
        """What there was before the window's first step."""
        return self.calls[0].before

    @property
    def is_one(self) -> bool:
        """Whether it is one batch, of which nothing was left out or replaced."""
        return self.planned <= 1 and self.calls[-1].rows is None

    def leave_out(self, count: float | torch.Tensor) -> None:
        """Add to what was left out."""
        self.left_out = count if self.left_out is None else self.left_out + count

    @property
    def nothing_left(self) -> bool:
        """Whether every clip of a complete window was left out and not replaced; a rehearsal is no window."""
        empty = all(call.inputs is None and not call.replacements for call in self.calls)
        return empty and 0 < self.planned <= len(self.calls)

    def weights_changed(self) -> bool:
        """Whether weights were written to since the window began."""
        return list(map(version_of, self._watched)) != self._versions

    def restore_gradients(self) -> bool:
        """Clear the gradients that the window has made; False where it has added to some that were there before."""
        before = {id(p) for p, _, _ in self._gradients}
        for p in {id(p): p for p in (*self._loop.parameters(), *self._uncleared)}.values():
            if id(p) not in before:
                p.grad = None
        return all(p.grad is gradient and gradient._version == version for p, gradient, version in self._gradients)
