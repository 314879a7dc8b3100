"""Repeated layers and micro-batches that are written down without being run, by what a shortened run showed.

A model of many identical layers is recorded twice: with a few of them at every shape, and whole at the first shape of
each structure. Where the shortened model has the same structure at another shape, the whole model's segments are those
that were run with the sizes of the few layers at the other shape. That the few layers explain every size and call of
what was run is checked first.

Each micro-batch of a window allocates the same storages in the same order as the first, and differs in when it frees
them. Where the first micro-batch has the structure of an earlier window's, the others are those of that window with the
sizes of this first one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from ._calls import Call, Numbers
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
        columns: dict[str, Any] = {
            name: [getattr(first, name)[p] for p in places] for name in ("op", "module", "tag", "lane")
        }
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
    return segment.op, segment.module, segment.sizes(), births_before_phases(segment)


def births_before_phases(segment: Segment) -> list[tuple[int, str]]:
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


_SizesAndCalls = tuple[list[int], list[tuple[Call, Numbers]]]
_REMAINING = 3  # of identical layers: the first, the second for all between, and the last
_FEWEST = 6  # fewer are left as they are: convolutions of a feature extractor, each of which halves the length
_SPECS = ("_parameters", "_buffers")


class Layers:
    """The numbered layers in the lists of a model, and for each the one that represents it.

    Neighbours are identical with the same modules, tensors, hooks and settings, except for numbers that count layers.
    """

    def __init__(self, model: nn.Module) -> None:
        self.numbers: dict[nn.Module, int] = {}
        """The number of each layer."""
        self._representatives: list[int] = []  # for each layer, by number: the one that represents it
        self._lists = list(dict.fromkeys(_outermost(model)))
        for layers in self._lists:
            first = len(self._representatives)
            self.numbers |= {layer: first + place for place, layer in enumerate(layers)}
            self._representatives += [first + place for place in _stand_ins(list(layers))]

    @property
    def left_out(self) -> int:
        """How many layers are represented by others."""
        return sum(number != other for number, other in enumerate(self._representatives))

    def leave_out(self) -> None:
        """Remove them from the model."""
        for layers in self._lists:
            remaining = [layer for layer in layers if self._representatives[self.numbers[layer]] == self.numbers[layer]]
            layers._modules.clear()
            layers.extend(remaining)

    def standing_in(self, lane: int) -> int:
        """The lane (``Whereabouts.lane``) of the shortened model that represents one of the whole model."""
        if lane == 0:
            return 0
        number, after = divmod(lane - 1, 2)
        return 2 * self._representatives[number] + 1 + after


def _outermost(module: nn.Module) -> Iterator[nn.ModuleList]:
    """The lists of modules that are in no other list."""
    for child in module.children():
        if isinstance(child, nn.ModuleList):
            yield child
        else:
            yield from _outermost(child)


def _stand_ins(layers: list[nn.Module]) -> list[int]:
    numbers = list(range(len(layers)))
    described = [_description(layer) for layer in layers]
    first = 0
    while first < len(layers):
        end = first + 1
        while end < len(layers) and _identical(described[first], first, described[end], end):
            end += 1
        if end - first >= _FEWEST:
            numbers[first + 1 : end - 1] = [first + 1] * (end - first - _REMAINING + 1)
        first = end
    return numbers


def _identical(one: list[Any], place: int, other: list[Any], its_place: int) -> bool:
    """Whether two layers have equal descriptions, except for their places."""
    if len(one) != len(other):
        return False
    return all(a is b or a == b or (a == place and b == its_place) for a, b in zip(one, other, strict=True))


def _description(layer: nn.Module) -> list[Any]:
    """Every attribute of a layer and of the modules in it."""
    parts: list[Any] = []
    for name, module in layer.named_modules():
        parts += [name, type(module)]
        for key, value in vars(module).items():
            if key in _SPECS:
                parts += [key, *((of, _spec(tensor)) for of, tensor in value.items())]
            elif key != "_modules":
                parts += [key, len(value) if key.endswith("_hooks") else value]
    return parts


def _spec(tensor: torch.Tensor | None) -> Any:
    return tensor if tensor is None else (tensor.shape, tensor.stride(), tensor.dtype, tensor.requires_grad)


@dataclass(frozen=True)
class Stretch:
    """Segments that are recorded as one: a window, or an evaluation.

    ``ends``: how many events each segment had at the end; ``living``: its storages that existed then.
    """

    segments: list[Segment]
    ends: list[int]
    living: list[list[int]]

    @classmethod
    def ended(cls, segments: list[Segment]) -> Stretch:
        """The newest segments, at their end."""
        dead = {-1 - event for segment in segments for event in segment.events if event < 0}
        living = [sorted(set(range(s.first, s.first + len(s.op))) - dead) for s in segments]
        return cls(segments, [len(s.events) for s in segments], living)

    def places(self) -> dict[int, tuple[int, int]]:
        """Of each living storage: its segment, and its rank among those."""
        return {number: (at, rank) for at, numbers in enumerate(self.living) for rank, number in enumerate(numbers)}

    def form(self, before: Stretch | None) -> list[Any]:
        """Everything but sizes and calls: equal where two stretches have the same structure after the one before."""
        earlier, start = {} if before is None else before.places(), self.segments[0].first
        return [
            (s.kind, s.op, s.module, s.tag, s.lane, s.calls.lanes, births_before_phases(s),
             _gaps(s, end, start, earlier))
            for s, end in zip(self.segments, self.ends, strict=True)
        ]  # fmt: skip

    def renews(self, before: Stretch | None) -> bool:
        """Whether it leaves as many storages as it frees of the stretch before it, at the same places."""
        start = self.segments[0].first
        freed = {-1 - e for s, end in zip(self.segments, self.ends, strict=True) for e in s.events[:end] if e < 0}
        earlier = {} if before is None else before.places()
        return {earlier.get(number) for number in freed if number < start} == set(self.places().values())


def _gaps(segment: Segment, end: int, start: int, earlier: dict[int, tuple[int, int]]) -> list[list[tuple[int, ...]]]:
    """What is freed between two allocations: storages of the stretch itself by number, and of the one before it."""
    gaps: list[list[tuple[int, ...]]] = [[]]
    for event in segment.events[:end]:
        number = -1 - event
        if event >= 0:
            gaps.append([])
        else:
            gaps[-1].append((number - start,) if number >= start else earlier.get(number, (0, 0, number)))
    return [sorted(gap) for gap in gaps]


@dataclass(frozen=True)
class Shortened:
    """The recording of a model without most of its identical layers; the whole one has as many stretches."""

    log: EventLog
    stretches: list[Stretch]
    lengths: list[dict[str, Any]]
    layers: Layers


class Whole:
    """Writes stretches of the whole model. ``stretches`` are all so far; the caller appends to them."""

    def __init__(self, log: EventLog, stretches: list[Stretch], short: Shortened) -> None:
        self._log, self._stretches, self._short = log, stretches, short
        self._forms = [stretch.form(before) for stretch, before in _with_previous(short.stretches)]
        self._run: list[int] = []  # the numbers of those that others can be written from

    def ran(self) -> None:
        """Note that the newest stretch was run."""
        number = len(self._stretches) - 1
        if self._stretches[number].renews(self._before(number)):
            self._run.append(number)

    def write(self, shape: dict[str, int]) -> bool:
        """Write the next stretch, if one that was run has its structure."""
        return any(self._write_like(number, shape) for number in self._run)

    def _write_like(self, like: int, shape: dict[str, int]) -> bool:
        number = len(self._stretches)
        if self._forms[like] != self._forms[number]:
            return False
        template, short = self._stretches[like], self._short.stretches
        parts = zip(template.segments, short[like].segments, short[number].segments, strict=True)
        spread = [self._spread(*part) for part in parts]
        if None in spread:
            return False
        earlier = self._renewed(self._before(like), self._before(number))
        for segment, end, (sizes, calls) in zip(template.segments, template.ends, filter(None, spread), strict=True):
            self._log.write(segment, end, earlier, shape, sizes, calls)
        written = Stretch.ended(self._log.segments[-len(template.segments) :])
        self._log.renew(self._renewed(self._before(number), written))
        return True

    def _before(self, number: int) -> Stretch | None:
        return self._stretches[number - 1] if number else None

    @staticmethod
    def _renewed(old: Stretch | None, new: Stretch | None) -> dict[int, int]:
        """Maps the living storages of one stretch to those of another at the same places."""
        at = {} if new is None else {place: number for number, place in new.places().items()}
        return {} if old is None else {number: at[place] for number, place in old.places().items() if place in at}

    def _spread(self, segment: Segment, short: Segment, target: Segment) -> _SizesAndCalls | None:
        """The sizes and calls of the whole model where the shortened one has those of ``target``.

        None where ``short`` does not explain ``segment``, which was run.
        """
        if short.sizes() == target.sizes() and short.calls == target.calls:
            return segment.sizes(), [call for _, call in _calls(self._log, segment)]
        births = self._places(_births(self._log, segment), _births(self._short.log, short))
        calls = self._places(_calls(self._log, segment), _calls(self._short.log, short))
        if births is None or calls is None:
            return None
        sizes, made = target.sizes(), _calls(self._short.log, target)
        return [sizes[place] for place in births], [made[place][1] for place in calls]

    def _places(self, rows: list[Any], short: list[Any]) -> list[int] | None:
        """For each row of the whole model the place of the equal one of the shortened; None if one has no partner."""
        by_lane = defaultdict(list)
        for place, (lane, _) in enumerate(short):
            by_lane[lane].append(place)
        remaining = {lane: iter(by_lane[self._short.layers.standing_in(lane)]) for lane, _ in rows}
        places = [next(remaining[lane], -1) for lane, _ in rows]
        explained = all(place >= 0 and short[place][1] == row for place, (_, row) in zip(places, rows, strict=True))
        return places if explained and all(next(others, None) is None for others in remaining.values()) else None


def _with_previous(stretches: list[Stretch]) -> Any:
    return zip(stretches, [None, *stretches], strict=False)


def _births(log: EventLog, segment: Segment) -> list[Any]:
    """The lane of each allocation, its size and its operation, without the distance at the end of a padded copy's."""
    names = [name.rsplit(":", 1)[0] if name.startswith("pad:") else name for name in log.ops.numbers]
    rows = zip(segment.lane, segment.sizes(), segment.op, strict=True)
    return [(lane, (size, names[op])) for lane, size, op in rows]


def _calls(log: EventLog, segment: Segment) -> list[tuple[int, tuple[Call, Numbers]]]:
    kinds, calls = list(log.calls.numbers), segment.calls
    return [(lane, (kinds[k], n)) for lane, k, n in zip(calls.lanes, calls.kinds, calls.numbers, strict=True)]
