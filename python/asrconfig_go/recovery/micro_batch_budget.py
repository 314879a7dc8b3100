"""Limits on the size of micro-batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..batching.batch_lengths import Extent

if TYPE_CHECKING:
    from ..memory.held_memory import Predicted


class Budget:
    """At most ``samples`` a micro-batch, and once one has not fitted, at most a number of values of the model's input.

    What a step needs grows with the padded batch, samples × length: half of a batch that failed is a limit that lets
    short clips form larger micro-batches than long ones. The limit never grows again: nothing here knows why it
    should. ``MemoryBudget`` does.
    """

    def __init__(self, samples: int | None = None, overhead_s: float | None = None) -> None:
        self.samples = samples
        self.overhead_s = overhead_s
        """What a micro-batch costs besides its padded length, in seconds of audio; batches are then split wherever that
        costs less. None: only batches that are too large, into as few micro-batches as can be."""
        self.rate: float | None = None
        """Units of length in a second of audio; None: the model's own."""
        self.values: int | None = None
        """The most values of a micro-batch."""
        self.too_long: int | None = None
        """Values of a single sample that did not fit."""
        self.is_limited = samples is not None or overhead_s is not None
        """Whether any batch may be too large, or cost less in several micro-batches."""
        self.has_failed = False
        """Whether a limit comes from a micro-batch that did not fit, in this training or the one that it resumes."""

    def size(self, extent: Extent, limit: int) -> int:
        """The samples of a micro-batch, 1 to ``limit``, whose longest one has this extent."""
        size = min(limit, self.samples or limit)
        return size if self.values is None else max(1, min(size, self.values // extent.values))

    def shrink(self, extent: Extent, size: int) -> None:
        """From now on no more than ``size`` samples of this extent: more did not fit."""
        self.has_failed = self.is_limited = True
        self.values = _least(self.values, size * extent.values)

    def lower(self, samples: int | None, values: int | None) -> None:
        """Limits that an earlier attempt came to, as far as they are below ours."""
        before = self.samples
        self.samples, self.values = _least(before, samples), _least(self.values, values)
        if self.values is not None or self.samples != before:
            self.has_failed = self.is_limited = True

    def prediction(self, samples: int, extent: Extent, kind: str) -> Predicted | None:
        """The predicted memory of micro-batches of this shape; ``kind`` is train, evaluate or generate."""
        return None

    def step_done(self) -> None:
        """An optimizer step has been taken."""


def _least(one: int | None, other: int | None) -> int | None:
    """The lower of two limits; either may be None."""
    return min((value for value in (one, other) if value is not None), default=None)
