"""Further micro-batches of a window, written down without being run where an earlier window shows what they would be.

A micro-batch that accumulates computes what the first of its window does: it allocates the same storages in the same
order, and differs in when it frees them. So where the first micro-batch of a window has the structure of an earlier
window's, the others are the earlier ones with the sizes of this first one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from ._log import TAGS, EventLog, Segment

_INPUT, _GRADIENT = TAGS.index("input"), TAGS.index("gradient")


@dataclass(frozen=True)
class Window:
    """The micro-batches of a window that was run: the first, and those that accumulate."""

    first: Segment
    further: list[Segment]

    def with_previous(self) -> Iterator[tuple[Segment, Segment]]:
        """Each further micro-batch with the one before it."""
        return zip(self.further, [self.first, *self.further], strict=False)

    def as_later(self) -> Window:
        """The window as it would be later on, without what the run's first micro-batch makes once and for all.

        That are workspaces, the gradient scaler's factor, a model's tables; what comes after them is numbered as if
        they were not there.
        """
        first = self.first
        freed = {-1 - event - first.first for one in (first, *self.further) for event in one.events if event < 0}
        for_a_step = (_INPUT, _GRADIENT)
        staying = {place for place, tag in enumerate(first.tag) if place not in freed and tag not in for_a_step}
        if not staying:
            return self
        left = [place for place in range(len(first.op)) if place not in staying]
        moved = {-1 - first.first - old: -1 - first.first - new for new, old in enumerate(left)}
        kept, place = [True] * len(first.events), -1  # of its events
        for at, event in enumerate(first.events):
            if event >= 0:
                place += 1
                kept[at] = place not in staying
        events = [moved.get(e, e) for e, keep in zip(first.events, kept, strict=True) if keep]
        phases = [(sum(kept[:at]), name) for at, name in first.phases]
        columns: dict[str, Any] = {
            name: [getattr(first, name)[p] for p in left] for name in ("op", "module", "tag", "lane")
        }
        return Window(
            replace(first, events=events, phases=phases, **columns),
            [replace(one, events=[moved.get(e, e) for e in one.events]) for one in self.further],
        )


class Windows:
    """The windows that were run, by which others can be written down."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._known: list[tuple[Any, Window]] = []

    def ran(self, window: Window) -> None:
        """Remember a window, if all of its micro-batches are alike."""
        window = window.as_later()
        if all(self._alike(window.first, previous, one) for one, previous in window.with_previous()):
            self._known.append((_structure(window.first), window))

    def unlike(self, count: int) -> bool:
        """Whether the newest windows, so many, begin with micro-batches of as many structures."""
        firsts = [segment for segment in self._log.segments if segment.kind == "micro"][-count:]
        found = [_structure(segment) for segment in firsts]
        return len(found) == count and all(one not in found[:place] for place, one in enumerate(found))

    def like(self, first: Segment) -> Window | None:
        """The window whose first micro-batch has the structure of this one; None without one."""
        structure = _structure(first)
        return next((window for known, window in self._known if known == structure), None)

    def _alike(self, first: Segment, previous: Segment, segment: Segment) -> bool:
        """Whether a micro-batch allocates what the first does, and leaves a new storage for each that it frees."""
        if _births(first) != _births(segment):
            return False
        freed = [self._log.home(-1 - e) for e in segment.events if e < 0 and -1 - e < segment.first]
        if any(home.first != previous.first for home, _ in freed):
            return False
        left = set(range(_inputs(segment), len(segment.op))).difference(_freed(segment))
        return left == {place for _, place in freed}


def _births(segment: Segment) -> tuple[Any, ...]:
    """What a segment allocates, in order: operations, modules, sizes, and how many before each phase."""
    return segment.op, segment.module, segment.sizes(), births_before_phases(segment)


def births_before_phases(segment: Segment) -> list[tuple[int, str]]:
    """Each phase with the number of births before it."""
    return [(sum(e >= 0 for e in segment.events[:at]), name) for at, name in segment.phases]


def _structure(segment: Segment) -> tuple[Any, ...]:
    """What segments of several shapes have in common: all but sizes, and what they free of earlier segments."""
    op, module, _, phases = _births(segment)
    gaps: list[list[int]] = [[]]  # what is freed between two allocations, whose order says nothing
    for event in segment.events:
        if event >= 0:
            gaps.append([])
        elif -1 - event >= segment.first:
            gaps[-1].append(-1 - event - segment.first)
    return list(op), list(module), phases, [sorted(gap) for gap in gaps]


def _freed(segment: Segment) -> Iterator[int]:
    return (-1 - e - segment.first for e in segment.events if e < 0 and -1 - e >= segment.first)


def _inputs(segment: Segment) -> int:
    """How many storages, the first ones, are inputs."""
    return next((place for place, tag in enumerate(segment.tag) if tag != _INPUT), len(segment.tag))
