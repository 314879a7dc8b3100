"""Micro-batches of a window that are written down without being run, by what an earlier window showed.

Each micro-batch of a window allocates the same storages in the same order as the first, and differs in when it frees
them. Where the first micro-batch has the structure of an earlier window's, the others are those of that window with the
sizes of this first one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from .event_log import TAGS, EventLog, Segment

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
        """The window as it would be later in the run, without what only the run's first micro-batch allocates.

        Such are workspaces, the gradient scaler's factor and a model's tables; storages are numbered without them.
        """
        first = self.first
        freed = {-1 - event - first.first for one in (first, *self.further) for event in one.events if event < 0}
        for_a_step = (_INPUT, _GRADIENT)
        staying = {place for place, tag in enumerate(first.tag) if place not in freed and tag not in for_a_step}
        if not staying:
            return self
        places = [place for place in range(len(first.op)) if place not in staying]
        moved = {-1 - first.first - old: -1 - first.first - new for new, old in enumerate(places)}
        keeps, place = [True] * len(first.events), -1  # of its events
        for at, event in enumerate(first.events):
            if event >= 0:
                place += 1
                keeps[at] = place not in staying
        events = [moved.get(e, e) for e, keep in zip(first.events, keeps, strict=True) if keep]
        phases = [(sum(keeps[:at]), name) for at, name in first.phases]
        columns: dict[str, Any] = {name: [getattr(first, name)[p] for p in places] for name in ("op", "module", "tag")}
        return Window(
            replace(first, events=events, phases=phases, **columns),
            [replace(one, events=[moved.get(e, e) for e in one.events]) for one in self.further],
        )


class Windows:
    """The windows that were run, from which others can be recorded."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._windows: list[tuple[Any, Window]] = []

    def ran(self, window: Window) -> None:
        """Remember a window if all of its micro-batches are alike."""
        window = window.as_later()
        if all(self._alike(window.first, previous, one) for one, previous in window.with_previous()):
            self._windows.append((_structure(window.first), window))

    def unlike(self, count: int) -> bool:
        """Whether the first micro-batches of the ``count`` newest windows all differ in structure."""
        firsts = [segment for segment in self._log.segments if segment.kind == "micro"][-count:]
        structures = [_structure(segment) for segment in firsts]
        return len(structures) == count and all(one not in structures[:place] for place, one in enumerate(structures))

    def like(self, first: Segment) -> Window | None:
        """The window whose first micro-batch has the structure of this one; None if there is none."""
        structure = _structure(first)
        return next((window for candidate, window in self._windows if candidate == structure), None)

    def _alike(self, first: Segment, previous: Segment, segment: Segment) -> bool:
        """Whether a micro-batch allocates what the first does, and leaves one storage for each old one it frees."""
        if _births_of_segment(first) != _births_of_segment(segment):
            return False
        freed = [self._log.home(-1 - e) for e in segment.events if e < 0 and -1 - e < segment.first]
        if any(home.first != previous.first for home, _ in freed):
            return False
        inputs = next((place for place, tag in enumerate(segment.tag) if tag != _INPUT), len(segment.tag))
        own = {-1 - e - segment.first for e in segment.events if e < 0}
        return set(range(inputs, len(segment.op))) - own == {place for _, place in freed}


def _births_of_segment(segment: Segment) -> tuple[Any, ...]:
    """What a segment allocates: operations, modules, sizes, and how many before each phase."""
    return segment.op, segment.module, segment.sizes(), _births_before_phases(segment)


def _births_before_phases(segment: Segment) -> list[tuple[int, str]]:
    """Each phase with the number of allocations before it."""
    return [(sum(e >= 0 for e in segment.events[:at]), name) for at, name in segment.phases]


def _structure(segment: Segment) -> tuple[Any, ...]:
    """What segments of different shapes can share: all but sizes, and what they free of earlier segments."""
    op, module, _, phases = _births_of_segment(segment)
    gaps: list[list[int]] = [[]]  # what is freed between two allocations, whose order has no meaning
    for event in segment.events:
        if event >= 0:
            gaps.append([])
        elif -1 - event >= segment.first:
            gaps[-1].append(-1 - event - segment.first)
    return list(op), list(module), phases, [sorted(gap) for gap in gaps]
