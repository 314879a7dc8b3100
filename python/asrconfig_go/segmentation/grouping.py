"""Pieces of consecutive segments: as long as the limit allows, cut where the pauses are widest."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .segments import Segment

_MARGIN_S = 0.5  # kept of a pause that does not fit into the piece beside it


@dataclass(frozen=True)
class Group:
    """The segments ``first`` to before ``last``, as the piece from ``start`` to ``end`` in seconds."""

    start: float
    end: float
    first: int
    last: int


def grouped(
    segments: Sequence[Segment],
    edges: Sequence[float],
    limit_s: float,
    fits: Callable[[int, int], bool] = lambda first, last: True,
) -> tuple[list[Group], list[int]]:
    """Groups in order, and the segments that are too long for one.

    ``edges`` are where to cut: from the start of the recording over a place between each two segments to its end, one
    more than there are segments. Neighbouring groups share an edge, so together they are the recording; but where the
    pause around a single segment does not fit, half a second of it is kept. ``fits`` tells whether the texts of the
    segments ``first`` to before ``last`` are short enough.
    """
    groups: list[Group] = []
    too_long: list[int] = []
    first = 0
    while first < len(segments):
        lasts = _possible(segments, edges, limit_s, fits, first)
        if not lasts:
            too_long.append(first)
            first += 1
            continue
        last = _widest(segments, edges, limit_s, first, lasts)
        groups.append(Group(*_span(segments, edges, limit_s, first, last), first, last))
        first = last
    return groups, too_long


def middles(segments: Sequence[Segment], duration: float) -> list[float]:
    """Edges in the middle of the pauses."""
    between = [round((a.end + b.start) / 2, 6) for a, b in itertools.pairwise(segments)]
    return [0.0, *between, duration]


def _possible(
    segments: Sequence[Segment], edges: Sequence[float], limit_s: float, fits: Callable[[int, int], bool], first: int
) -> list[int]:
    """Where a group that starts with ``first`` can end."""
    if segments[first].end - segments[first].start > limit_s or not fits(first, first + 1):
        return []
    lasts = [first + 1]
    for last in range(first + 2, len(segments) + 1):
        if edges[last] - edges[first] > limit_s or not fits(first, last):
            break
        lasts.append(last)
    return lasts


def _widest(segments: Sequence[Segment], edges: Sequence[float], limit_s: float, first: int, lasts: list[int]) -> int:
    """The end of the recording, or behind half of the limit the widest pause, or the last one that fits."""
    if lasts[-1] == len(segments):
        return lasts[-1]
    late = [last for last in lasts if edges[last] - edges[first] >= limit_s / 2]
    return max(late, key=lambda last: (segments[last].start - segments[last - 1].end, last)) if late else lasts[-1]


def _span(
    segments: Sequence[Segment], edges: Sequence[float], limit_s: float, first: int, last: int
) -> tuple[float, float]:
    start, end = edges[first], edges[last]
    if end - start <= limit_s:
        return start, end
    said_from, said_to = segments[first].start, segments[last - 1].end
    margin = min(_MARGIN_S, (limit_s - (said_to - said_from)) / 2)
    return max(start, round(said_from - margin, 6)), min(end, round(said_to + margin, 6))
