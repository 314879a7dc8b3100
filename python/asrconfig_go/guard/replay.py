"""A window that is computed again after an error: what is put back before, and what cannot be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .loop import Before, Call
from .micro_batches import CannotRetryError
from .step_state import InPlace, changed_values, put_values

if TYPE_CHECKING:
    from .accumulation_window import Window
    from .loop import Loop
    from .step_state import StepState


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
