"""The accumulation window: the batches of one optimizer step, and what there was when it began."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ..batching.batch_lengths import Extent, extent
from ..batching.collated_batch import batch_size, pick, shallow, tensors_of
from .padding import trimmed
from .step_state import Before, StepState

_version: Callable[[Any], int] = operator.attrgetter("_version")


@dataclass
class Call:
    """One collated batch of the window, and what its loop passes beside it."""

    inputs: Any
    """None once all its clips were left out."""
    before: Before
    versions: list[tuple[torch.Tensor, int]]
    """Of the batch's tensors, which count how often each was changed in place."""
    arguments: Any = None
    replacements: list[Any] = field(default_factory=list)
    """Batches that the user's function made of clips that were too long."""
    loss: Any = 0.0
    reported: Any = 0.0
    """The weighted loss, and what of it the loop has been given."""
    rows: list[int] | None = None
    """The numbers in the collated batch of the clips that are left; None while all are."""
    _size: tuple[Any, int, Extent] | None = None

    def size(self) -> tuple[int, Extent]:
        """Its clips, and the extent of each."""
        if self._size is None or self._size[0] is not self.inputs:
            self._size = self.inputs, batch_size(self.inputs), extent(self.inputs)
        return self._size[1:]

    def take_out(self, row: int, lengths: list[int]) -> Any:
        """Take a clip out, and return it as a batch of one; the others are padded to the longest of them.

        ``lengths`` are those of all without padding.
        """
        others = [i for i in range(len(lengths)) if i != row]
        clip = trimmed(pick(self.inputs, [row]), lengths[row])
        self.inputs = trimmed(pick(self.inputs, others), max(lengths[i] for i in others)) if others else None
        rows = list(range(len(lengths))) if self.rows is None else self.rows
        self.rows = [rows[i] for i in others]
        return clip

    @property
    def changed(self) -> bool:
        """Whether the step has changed the batch in place, so that it cannot be computed again."""
        return any(tensor._version != version for tensor, version in self.versions)


class Window:
    """The accumulation window that a loop is in: from one optimizer step to the next."""

    def __init__(self, state: StepState, parameters: Callable[[], list[torch.Tensor]]) -> None:
        self._state, self._parameters = state, parameters
        self._watched: list[torch.Tensor] = []  # the parameters, listed when everything is looked at
        self._number = 0
        self.clear()

    def restart(self) -> None:
        """Another training begins."""
        self._number, self._watched = 0, []
        self.clear()

    def clear(self) -> None:
        """Forget the batches."""
        self.batches: Sequence[Any] = ()
        self.calls: list[Call] = []
        self.planned = 0
        self.total: Any = None
        """What the loss of the window is divided by, once that was counted."""
        self.left_out: Any = 0
        """What of it was left out."""
        self._gradients: list[tuple[Any, Any, int]] = []
        self._versions: list[int] = []

    def begin(self, batches: Sequence[Any]) -> None:
        """The loop has fetched the batches of the next optimizer step."""
        self.clear()
        self.batches, self.planned = batches, len(batches)

    def call(self, inputs: Any, arguments: Any = None) -> Call:
        """Note one more batch; with the first, what there is before the optimizer step."""
        first = not self.calls
        if first:
            self._number += 1
        # Everything is looked at before the first, second, fourth, eighth … optimizer step.
        before = self._state.before(whole=first and not self._number & (self._number - 1))
        if first:
            if before.whole or not self._watched:
                self._watched = self._parameters()
            parameters = self._watched
            self._versions = list(map(_version, parameters))
            self._gradients = [(p, p.grad, p.grad._version) for p in parameters if p.grad is not None]
        # Of its own: a step may take entries out of what it is given.
        versions = [(tensor, tensor._version) for tensor in tensors_of(inputs)]
        self.calls.append(Call(shallow(inputs), before, versions, arguments))
        return self.calls[-1]

    @property
    def first(self) -> Before:
        """What there was before the window's first step."""
        return self.calls[0].before

    @property
    def is_one(self) -> bool:
        """Whether it is one batch, of which nothing was left out or replaced."""
        return self.planned <= 1 and self.calls[-1].rows is None

    @property
    def complete(self) -> bool:
        """Whether the batch begun last is the last one of its optimizer step."""
        return len(self.calls) >= self.planned

    @property
    def nothing_left(self) -> bool:
        """Whether every clip of a complete window was left out and not replaced."""
        return self.complete and all(call.inputs is None and not call.replacements for call in self.calls)

    def weights_changed(self) -> bool:
        """Whether weights were written to since the window began."""
        return list(map(_version, self._watched)) != self._versions

    def restore_gradients(self) -> bool:
        """Clear the gradients that the window has made; False where it has added to some that were there before."""
        before = {id(p) for p, _, _ in self._gradients}
        for p in {id(p): p for p in (*self._watched, *self._parameters())}.values():
            if id(p) not in before:
                p.grad = None
        return all(p.grad is gradient and gradient._version == version for p, gradient, version in self._gradients)
