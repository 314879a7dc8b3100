"""The accumulation window: the batches of one optimizer step, their micro-batches, and the state when it began.

The engine adds each batch to its ``Window`` before computing it. When memory runs out, it makes a ``Replay``, which
puts back gradients and state before the batches are computed again; ``Splitting`` makes their micro-batches. While
nothing fails, a window holds references only: it copies nothing, and changes neither the model nor its gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from .._core.batches import (
    Extent,
    UnsplittableBatchError,
    batch_size,
    check_rows,
    entries,
    extent,
    own_lengths,
    shallow,
    split,
    tensors_of,
)
from .._core.padding import micro_batches, min_trimmed_length
from ..errors import InvalidArgumentError
from ..predict.step_sampler import cheapest
from .loop import Batch, Before, Call, Loop, Split, version_of
from .loss_rule import LossRule
from .micro_batches import Budget, CannotRetryError, Piece
from .step_state import InPlace, StepState, batch_norms, changed_values, put_values

_STATISTICS_HINT = (
    "freeze the part that holds them by asrconfig_go.plan.freeze, or pass split_batch_statistics=True, which allows "
    "statistics of smaller micro-batches"
)
_GIVE_SPLIT = "pass split=…, a function from a batch and a size to a list of batches"


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
        self.restart()

    def restart(self) -> None:
        """Another training begins."""
        self._watched: list[torch.Tensor] = []  # weights that a step may change; listed by _look
        self._uncleared: list[torch.Tensor] = []  # parameters whose gradients the loop does not clear itself
        self._number = 0  # of the window, counted from the start of the training
        self._step: int | None = None  # the optimizer steps before the newest window
        self.begin(())

    def begin(self, batches: Sequence[Any]) -> None:
        """Another window begins, for which the loop has fetched ``batches``."""
        self.batches = batches
        self.calls: list[Call] = []
        self.planned = len(batches)
        self.total: float | torch.Tensor | None = None
        self.left_out: float | torch.Tensor | None = None
        self._gradients: list[tuple[Any, Any, int]] = []  # parameter, gradient and its version, before the window
        self._carried: list[tuple[Any, Any]] = []  # parameter and a copy of its gradient, before the window
        self._versions: list[int] = []  # of the watched weights, before the window

    def add(self, inputs: Batch, arguments: object = None) -> Call:
        """Add the batch that is computed next, with the state before it; ``arguments`` are passed back to the loop."""
        is_first = not self.calls
        self._number += is_first
        looks = is_first and not self._number & (self._number - 1)  # in the first, second, fourth, eighth … window
        before = self._state.before(looks)
        if looks:
            self._look()
        if is_first:
            self._versions = list(map(version_of, self._watched))
            self._note_gradients()
        batch = inputs = self._fit(inputs)
        versions = list[tuple[torch.Tensor, int]]()
        if self._may_change:  # such a step may change tensors of its batch in place, or remove entries
            versions = [(tensor, tensor._version) for tensor in tensors_of(inputs)]
            inputs = shallow(inputs)
        call = Call(inputs, before, versions, self._fit, batch, arguments)
        self.calls.append(call)
        return call

    def _note_gradients(self) -> None:
        """Note the gradients that there are before the window.

        Where a stream ends within a window, the Trainer takes no optimizer step and carries its gradients into the
        next: they are copied, once in each pass.
        """
        step, before = self._loop.step_number, self._step
        self._step = step
        if step == before:
            gradients = [(p, p.grad) for p in self._loop.parameters()]
            self._carried = [(p, gradient.to("cpu", copy=True)) for p, gradient in gradients if gradient is not None]
        elif self._uncleared:
            self._gradients = [(p, p.grad, p.grad._version) for p in self._uncleared if p.grad is not None]

    def _look(self) -> None:
        """List what steps may change: looking takes too long to be done in every window."""
        self._rule.has_hooks = self._loop.has_hooks()
        self._may_change = not self._rule.is_certain or self._rule.is_given
        self._watched = self._loop.parameters() if self._may_change else []
        self._uncleared = [*self._loop.uncleared(), *self._state.leaves]

    def loader_position(self, call: Call) -> int:
        """The position of a batch of the window among those that the loader has delivered, -1 for the newest."""
        return next(i for i, other in enumerate(self.calls) if other is call) - self.planned

    def take_out(self, call: Call, row: int) -> Any:
        """Leave the clip in ``row`` of a batch out, and return it as a batch of one."""
        clip = call.take_out(row)
        self.leave_out(self._rule.count(clip))
        return clip

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
        for p, gradient in self._carried:
            p.grad = gradient.to(p.device, copy=True)
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
        self._copies = state.copies(failed.before)  # of what steps change in place, as the failed attempt has left it
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

        State and ``copies`` of tensors that steps change in place are from ``before`` the micro-batch.
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


class Splitting:
    """Splits the batches of one loop.

    Attributes:
        split: The user's function, if there is one.
        splits_statistics: Whether batches may be split whose clips the model sees together.
        refused: Why no batch can be split, once a part of one has shown that; "" before.
        rehearses: Whether a batch is computed that trains nothing.
        is_shared: Whether other processes take part in every forward: no batch is split, as theirs are not.
    """

    def __init__(
        self, loop: Loop, rule: LossRule, budget: Budget, split: Split | None, splits_statistics: bool
    ) -> None:
        self._loop, self._rule, self._budget = loop, rule, budget
        self.split, self.splits_statistics = split, splits_statistics
        self._requested = f"micro_batch = {budget.samples}" if budget.samples else ""  # for errors
        self.refused, self.rehearses, self.is_shared = "", False, False

    def is_split(self, call: Call) -> bool:
        """Whether a batch is computed in micro-batches: it is too large, and may be split."""
        if not self._budget.is_limited or self.is_shared or self._rule.unfit or call.inputs is None:
            return False
        if self._rule.name is None and not (self._budget.has_failed or self.rehearses):
            return False
        if not (reason := self.cannot_split(call)):
            return is_too_large(*call.size(), self._budget)
        hint = _STATISTICS_HINT if reason == self.depends_on_batch() else _GIVE_SPLIT
        if self._requested:
            raise InvalidArgumentError(f"{self._requested} would not train as the whole batch does: {reason}", hint)
        self._loop.say(f"batches are not split, as that would change the result: {reason}; {hint}")
        return False

    def cannot_split(self, call: Call) -> str:
        """Why this batch cannot be split; "" where it can."""
        if self.refused:
            return self.refused
        try:
            check_rows(call.inputs) if self.split is None else call.size()
        except UnsplittableBatchError as error:
            return str(error.message)
        return self.depends_on_batch()

    def depends_on_batch(self) -> str:
        """The layers that see which clips a batch holds, in words; "" for none, or where they may see fewer."""
        if self.splits_statistics or not (norms := batch_norms(self._loop.model)):
            return ""
        self._loop.prepare()  # they normalise over the batch in training only
        live = [name for name, norm in norms if norm.training or not norm.track_running_stats]
        more = f" and {len(live) - 1} more" if len(live) > 1 else ""
        return f"{live[0]}{more} of the model normalise over the clips of a batch" if live else ""

    def piece(self, call: Call) -> Piece | None:
        """The micro-batch that is computed first."""
        if call.inputs is None:
            return None
        try:
            count, clip_extent = call.size()
        except UnsplittableBatchError as error:
            return Piece(1, extent(call.inputs), cannot_split=str(error.message))
        reason = self.cannot_split(call)
        size = count if reason or not self.is_split(call) else self._budget.size(clip_extent, count)
        hint = _STATISTICS_HINT if reason and reason == self.depends_on_batch() else ""
        return Piece(size, clip_extent, cannot_split=reason, hint=hint or (_GIVE_SPLIT if reason else ""))

    def parts(self, call: Call) -> Iterator[tuple[Any, Piece]]:
        """The micro-batches of a batch, and those that replace its clips."""
        if call.inputs is not None:
            if not self.is_split(call):
                yield shallow(call.inputs), self.piece(call) or Piece(1, extent(call.inputs))
            elif self.split is None and self._rule.trims:
                yield from by_length(call.inputs, self._budget, self._loop.model)
            else:
                yield from evenly(call.inputs, self._budget, self.split)
        for part in call.replacements:
            yield shallow(part), Piece(batch_size(part), extent(part), of_replacement=True)


def is_too_large(n: int, clip_extent: Extent, budget: Budget) -> bool:
    """Whether a batch of ``n`` samples is too large for one micro-batch, or may cost less in several."""
    return budget.overhead_s is not None or budget.size(clip_extent, n) < n


def evenly(inputs: Batch, budget: Budget, by: Split | None) -> Iterator[tuple[Any, Piece]]:
    """Micro-batches in order, with the batch's padding; copies, as a step may take entries out of them."""
    n, clip_extent = batch_size(inputs), extent(inputs)
    size = budget.size(clip_extent, n)
    parts = (by or split)(inputs, size) if size < n else [shallow(inputs)]
    for part in parts:
        yield part, Piece(n if size >= n else batch_size(part), clip_extent)


def by_length(inputs: Batch, budget: Budget, model: torch.nn.Module) -> Iterator[tuple[Any, Piece]]:
    """Micro-batches of clips of similar length, the longest first, without the padding that each does not need."""
    from ..predict.worst_batch import per_second  # loads the trace

    lengths = own_lengths(inputs)
    if lengths is None:
        yield from evenly(inputs, budget, None)
        return
    shortest, padded, width = min_trimmed_length(model), extent(inputs).length, extent(inputs).width
    lengths = [min(max(length, shortest), padded) for length in lengths]  # as they are computed
    rate = budget.rate or per_second(entries(inputs), model)
    overhead = None if budget.overhead_s is None or rate is None else budget.overhead_s * rate

    def size(longest: int, left: int) -> int:
        return budget.size(Extent(longest, width), left)

    # In the batch's order, so that the micro-batches of a batch of equal clips do not depend on sorting.
    groups = [
        (sorted(rows), lengths[rows[0]]) for rows in cheapest(lengths, size, overhead, budget.host_s * (rate or 0.0))
    ]
    for (rows, longest), part in zip(groups, micro_batches(inputs, groups), strict=True):
        yield part, Piece(len(rows), Extent(longest, width))
