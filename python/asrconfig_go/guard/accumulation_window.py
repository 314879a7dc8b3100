"""The accumulation window: the batches of one optimizer step, the state when it began, and how that is put back.

The engine adds each batch to its ``Window`` before computing it. When memory runs out, it makes a ``Replay``, which
puts back gradients and state before the batches are computed again. While nothing fails, a window holds references
only: it copies nothing, and changes neither the model nor its gradients.
"""

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
    """The accumulation window that a loop is in: from one optimizer step to the next.

    Attributes:
        batches: The batches that the loop has fetched for the optimizer step.
        planned: How many batches the window will have; 0 between windows and in a rehearsal.
        calls: The batches that were added so far.
        total: What the loss of the window is divided by, once that was counted.
        left_out: The part of ``total`` that left-out clips had; None while no clip was left out.
    """

    def __init__(self, loop: Loop, rule: LossRule, state: StepState, fit: Callable[[Any], Any]) -> None:
        """``fit`` pads a batch where the model requires it."""
        self._loop, self._rule, self._state, self._fit = loop, rule, state, fit
        self._may_change = True  # whether a step may change weights or its batch
        self._watched: list[torch.Tensor] = []  # weights that a step may change; listed by _look
        self._uncleared: list[torch.Tensor] = []  # parameters whose gradients the loop does not clear itself
        self._number = 0  # of the window, counted from the start of the training
        self.begin(())

    def restart(self) -> None:
        """Another training begins."""
        self._number, self._watched, self._uncleared = 0, [], []
        self.begin(())

    def begin(self, batches: Sequence[Any]) -> None:
        """Another window begins, for which the loop has fetched ``batches``."""
        self.batches = batches
        self.calls: list[Call] = []
        self.planned = len(batches)
        self.total: float | torch.Tensor | None = None
        self.left_out: float | torch.Tensor | None = None
        self._gradients: list[tuple[Any, Any, int]] = []  # parameter, gradient and its version, before the window
        self._versions: list[int] = []  # of the watched weights, before the window

    def add(self, inputs: Batch, arguments: object = None) -> Call:
        """Add the batch that is computed next, with the state before it.

        Args:
            inputs: The collated batch.
            arguments: What else the loop's step takes; it is passed back to the loop.
        """
        is_first = not self.calls
        self._number += is_first
        looks = is_first and not self._number & (self._number - 1)  # in the first, second, fourth, eighth … window
        before = self._state.before(looks)
        if looks:
            self._look()
        if is_first and self._watched:
            self._versions = list(map(version_of, self._watched))
        if is_first and self._uncleared:
            self._gradients = [(p, p.grad, p.grad._version) for p in self._uncleared if p.grad is not None]
        batch = inputs = self._fit(inputs)
        versions = list[tuple[torch.Tensor, int]]()
        if self._may_change:  # such a step may change tensors of its batch in place, or remove entries
            versions = [(tensor, tensor._version) for tensor in tensors_of(inputs)]
            inputs = shallow(inputs)
        call = Call(inputs, before, versions, self._fit, batch, arguments)
        self.calls.append(call)
        return call

    def _look(self) -> None:
        """List what steps may change: looking takes too long to be done in every window."""
        self._rule.has_hooks = self._loop.has_hooks()
        self._may_change = not self._rule.is_certain or self._rule.is_given
        self._watched = self._loop.parameters() if self._may_change else []
        self._uncleared = [*self._loop.uncleared(), *self._state.leaves]

    def loader_position(self, call: Call) -> int | None:
        """The position of a batch among those that the loader has delivered, -1 for the newest; None if unknown."""
        return next((i - self.planned for i, other in enumerate(self.calls) if other is call), None)

    @property
    def is_one_whole_batch(self) -> bool:
        """Whether it is a single batch, of which no clip was left out."""
        return self.planned <= 1 and self.calls[-1].rows is None

    def leave_out(self, count: float | torch.Tensor) -> None:
        """Count clips as left out; ``count`` is what the loss would have been divided by for them."""
        self.left_out = count if self.left_out is None else self.left_out + count

    @property
    def is_empty(self) -> bool:
        """Whether every clip of a complete window was left out, and none replaced; False in a rehearsal."""
        empty = all(call.inputs is None and not call.replacements for call in self.calls)
        return empty and 0 < self.planned <= len(self.calls)

    def weights_changed(self) -> bool:
        """Whether weights were written to since the window began."""
        return list(map(version_of, self._watched)) != self._versions

    def restore_gradients(self) -> bool:
        """Clear the gradients that the window has made; False where it has added to some that were there before."""
        had_gradient = {id(p) for p, _, _ in self._gradients}
        for p in {id(p): p for p in (*self._loop.parameters(), *self._uncleared)}.values():
            if id(p) not in had_gradient:
                p.grad = None
        return all(p.grad is gradient and gradient._version == version for p, gradient, version in self._gradients)


class Replay:
    """Puts back the state of a window before it is computed again, however often that is tried.

    The engine calls ``rewind`` before each attempt, ``first_computed`` after the first micro-batch of a batch,
    ``computed`` after the batch, and ``lost`` at the end.

    Attributes:
        paths: The state that cannot be put back, as paths from the loop's objects.
        has_rule: Whether the rule was measured. It is not measured again where micro-batches do not fit either, as
            no memory is left for it.
    """

    def __init__(self, loop: Loop, window: Window, state: StepState, failed: Call) -> None:
        """``failed`` is the batch in which memory ran out, the newest of ``window``."""
        self._loop, self._window, self._state, self._failed = loop, window, state, failed
        self._copies = state.copies(
            failed.before
        )  # tensors that steps change in place, as the failed attempt has left them
        self._statistics = state.statistics()
        self._generators = state.generator_states()  # where the failed attempt has left them
        self._writes: dict[int, int] = {}  # by the first micro-batch of the newest batch, by tensor
        self._began: Before | None = None  # the state from which the newest attempt began
        self.paths: list[str] = []
        self.has_rule = False

    def rewind(self) -> None:
        """Put back the state in which the window began.

        Raises:
            CannotRetryError: Where the step has changed weights, its batch, or gradients that were there before.
        """
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
        # Where it fails again, state that only failures change is left as it is: it may be a count of them.
        first = window.calls[0].before
        self.paths += state.put_back(first, self._failed.before, changed_before=self._began is not None)
        self._began = state.before(full=True)

    def first_computed(self, call: Call, before: Before, copies: list[InPlace]) -> None:
        """Note what the first micro-batch of a batch has drawn, and how often it has written to tensors in place.

        Args:
            call: The batch.
            before: The state before the micro-batch.
            copies: The values before it of tensors that steps change in place.
        """
        if call is self._failed:
            self._state.compare_draws(before, self._generators)
        self._writes = self._state.writes(before)
        changed = changed_values(copies)
        self.paths += [e.path for e in copies if e.path in changed and not self._writes.get(id(e.tensor))]
        self._state.watch([e for e in copies if e.path in changed])

    def computed(self, call: Call) -> None:
        """Undo the second update of tensors that the failed attempt had updated for this batch already."""
        if call is not self._failed:
            put_values(self._copies)
            return
        changed = [entry for entry in self._copies if entry.writes]
        updated_alike = [entry for entry in changed if entry.writes == self._writes.get(id(entry.tensor))]
        put_values(updated_alike)
        self.paths += [e.path for e in changed if e not in updated_alike or id(e.tensor) not in self._statistics]

    def lost(self) -> list[str]:
        """The paths of the state that could not be put back; call it after ``rewind``."""
        assert self._began is not None
        return [*self.paths, *self._state.unseen(self._window.calls[0].before, self._began)]
