"""The accumulation window: the batches of one optimizer step, what there was when it began, and how it is replayed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from .._core.batches import shallow, tensors_of
from .loop import Batch, Before, Call, Loop, version_of
from .micro_batches import CannotRetryError
from .step_state import InPlace, StepState, changed_values, put_values

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


class Replay:
    """A window that is computed again: what the failed attempt had changed, and what of it cannot be put back."""

    def __init__(self, loop: Loop, window: Window, state: StepState, failed: Call) -> None:
        self._loop, self._window, self._state, self._failed = loop, window, state, failed
        self._copies = state.copies(failed.before)
        self._statistics = state.statistics()
        self._generators = state.generator_states()  # behind the whole batch, or where it failed
        self._writes: dict[int, int] = {}  # of the first micro-batch of the batch that failed
        self._began: Before | None = None
        self.paths: list[str] = []
        """What cannot be put back."""
        self.has_rule = False
        """Whether the rule was measured: micro-batches that do not fit either leave no memory to measure it again."""

    def rewind(self) -> None:
        """Put back what there was when the window began. Raises ``CannotRetryError`` where that is impossible."""
        window, state, step = self._window, self._state, self._loop.title
        if window.weights_changed():
            raise CannotRetryError(f"{step} changes weights, and failed in between")
        if any(call.changed for call in window.calls):
            raise CannotRetryError(f"{step} has changed its batch in place")
        if not window.restore_gradients():
            raise CannotRetryError(
                f"{step} has added to gradients that were there before it began: clear them behind each optimizer "
                "step, or freeze their parameters"
            )
        put_values(self._copies)
        # Where it fails again, what only failures change is left: somebody may count them.
        self.paths += state.put_back(window.first, self._failed.before, changed_before=self._began is not None)
        self._began = state.before(full=True)

    def first_computed(self, call: Call, before: Before, copies: list[InPlace]) -> None:
        """The first micro-batch of a batch is over: how often it has written to tensors in place, and what it drew."""
        if call is self._failed:
            self._state.compare_draws(before, self._generators)
        self._writes = self._state.writes(before)
        changed = changed_values(copies)
        self.paths += [e.path for e in copies if e.path in changed and not self._writes.get(id(e.tensor))]
        self._state.watch([e for e in copies if e.path in changed])

    def computed(self, call: Call) -> None:
        """A batch is over: what the failed attempt had changed in place as often already is put back to that."""
        if call is not self._failed:
            put_values(self._copies)
            return
        changed = [entry for entry in self._copies if entry.writes]
        again = [entry for entry in changed if entry.writes == self._writes.get(id(entry.tensor))]
        put_values(again)
        self.paths += [e.path for e in changed if e not in again or id(e.tensor) not in self._statistics]

    def lost(self) -> list[str]:
        """The paths of what could not be put back."""
        assert self._began is not None  # by rewind
        return [*self.paths, *self._state.unseen(self._window.first, self._began)]
