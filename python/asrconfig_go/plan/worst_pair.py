"""The worst row of a dataset: the pair of audio and text whose batch takes the most memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..memory import MemoryModel

_SIZE = 2  # clips of the batches by which pairs are compared
_SAME = 1.03  # times the longest: a clip's length in units of the model follows from its seconds on average alone
_ABOUT = 0.98  # of a pair that is traced for its own sake, no other has so much of both


@dataclass(frozen=True)
class Pairs:
    """Seconds and labels of some ``rows``, and ``longest_s``, the seconds of the longest row of all.

    ``seconds`` and ``labels`` belong to the worst row; labels are None, for a usual text, where no row is known.
    """

    rows: tuple[tuple[float, int], ...]
    longest_s: float
    seconds: float
    labels: int | None

    @classmethod
    def of(
        cls, memory: MemoryModel, pairs: Iterable[tuple[int, int]], longest_s: float, *, exact: bool, limited: bool
    ) -> Pairs:
        """Of rows whose length and labels are ``pairs``, in units of the model; no longer ones where ``limited``.

        Of those that no other exceeds in both, the one with the highest predicted peak is the worst. Not ``exact``,
        where each has to be traced: those that no other comes near in both.
        """
        rows = [(length / memory.length_per_second, labels) for length, labels in pairs]
        rows = [(seconds, labels) for seconds, labels in rows if not limited or seconds <= _SAME * longest_s]
        if not rows:
            return cls((), longest_s, longest_s, None)
        if max(rows)[0] < _ABOUT * longest_s:
            rows.append((longest_s, memory.labels(longest_s)))
        front = _front(rows, 1.0 if exact else _ABOUT)
        seconds, labels = front[0] if len(front) == 1 else max(front, key=lambda row: _peak(memory, *row))
        return cls(tuple(rows), longest_s, seconds, labels)

    def at(self, seconds: float) -> tuple[float, int | None]:
        """Seconds and labels of the largest batch of rows up to this length: the longest text of any of them."""
        if self.labels is None:
            return seconds, None
        if seconds >= self.longest_s:
            return self.seconds, self.labels
        label_counts = [labels for length, labels in self.rows if length <= _SAME * seconds]
        return seconds, max(label_counts, default=None)


def _front(rows: list[tuple[float, int]], share: float) -> list[tuple[float, int]]:
    """The rows that no other one exceeds in both; below 1, so much of both is enough. The longest first."""
    front: list[tuple[float, int]] = []
    for seconds, labels in sorted(rows, reverse=True):
        if not any(longer >= share * seconds and more >= share * labels for longer, more in front):
            front.append((seconds, labels))
    return front


def _peak(memory: MemoryModel, seconds: float, labels: int) -> int:
    return memory.estimate(_SIZE, seconds, labels, timeline=0).peak_reserved
