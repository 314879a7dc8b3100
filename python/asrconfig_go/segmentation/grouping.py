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
        if segments[first].end - segments[first].start > limit_s or not fits(first, first + 1):
            too_long.append(first)
            first += 1
            continue
        lasts = [first + 1]
        for last in range(first + 2, len(segments) + 1):
            if edges[last] - edges[first] > limit_s or not fits(first, last):
                break
            lasts.append(last)
        last = lasts[-1]
        if last < len(segments):  # end in the widest pause of the second half of the limit
            late = [i for i in lasts if 2 * (edges[i] - edges[first]) >= limit_s]
            last = max(late, key=lambda i: (segments[i].start - segments[i - 1].end, i), default=last)
        groups.append(_group(segments, edges, limit_s, first, last))
        first = last
    return groups, too_long


def middles(segments: Sequence[Segment], duration: float) -> list[float]:
    """Edges in the middle of the pauses."""
    between = [round((a.end + b.start) / 2, 6) for a, b in itertools.pairwise(segments)]
    return [0.0, *between, duration]


def _group(segments: Sequence[Segment], edges: Sequence[float], limit_s: float, first: int, last: int) -> Group:
    start, end = edges[first], edges[last]
    if end - start > limit_s:
        spoken_from, spoken_to = segments[first].start, segments[last - 1].end
        margin = min(_MARGIN_S, (limit_s - (spoken_to - spoken_from)) / 2)
        start, end = max(start, round(spoken_from - margin, 6)), min(end, round(spoken_to + margin, 6))
    return Group(start, end, first, last)
