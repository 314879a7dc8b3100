"""Segments of a whole model that are written down without being run, by what a shortened model showed.

A model of many identical layers is recorded twice: with a few of them at every shape, and whole at the first shape of
each structure. Where the shortened model does at another shape what it did at that one, so does the whole model: its
segments are written down as those that were run, with the sizes that the few layers have at the other shape. That those
explain every size and call of what was run is checked first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ._calls import Call, Numbers
from ._log import EventLog, Segment
from ._repeats import births_before_phases

_Found = tuple[list[int], list[tuple[Call, Numbers]]]
_KEPT = 3  # of identical layers: the first, the second for all between, and the last
_FEWEST = 6  # fewer are left as they are: convolutions of a feature extractor, each of which halves the length
_SPECS = ("_parameters", "_buffers")


class Layers:
    """The layers in the lists of a model, numbered through, and which of them stands for which.

    Identical are neighbours with the same modules, tensors, hooks and settings, but for numbers that count the layers.
    """

    def __init__(self, model: nn.Module) -> None:
        self.numbers: dict[nn.Module, int] = {}
        """Of each layer."""
        self._stands: list[int] = []  # for each layer, by number: the one that stands for it
        self._lists = list({id(each): each for each in _outermost(model)}.values())
        for layers in self._lists:
            first = len(self._stands)
            self.numbers |= {layer: first + place for place, layer in enumerate(layers)}
            self._stands += [first + place for place in _stand_ins(list(layers))]

    @property
    def left_out(self) -> int:
        """How many layers others stand for."""
        return sum(number != stands for number, stands in enumerate(self._stands))

    def leave_out(self) -> None:
        """Take them out of the model."""
        for layers in self._lists:
            kept = [each for each in layers if self._stands[self.numbers[each]] == self.numbers[each]]
            layers._modules.clear()
            layers.extend(kept)

    def standing_in(self, lane: int) -> int:
        """The lane (``Whereabouts.lane``) of the shortened model that stands for one of the whole model."""
        if lane == 0:
            return 0
        number, after = divmod(lane - 1, 2)
        return 2 * self._stands[number] + 1 + after


def _outermost(module: nn.Module) -> Iterator[nn.ModuleList]:
    """The lists of modules that lie in no other one."""
    for child in module.children():
        if isinstance(child, nn.ModuleList):
            yield child
        else:
            yield from _outermost(child)


def _stand_ins(layers: list[nn.Module]) -> list[int]:
    found = list(range(len(layers)))
    described = [_description(layer) for layer in layers]
    first = 0
    while first < len(layers):
        end = first + 1
        while end < len(layers) and _identical(described[first], first, described[end], end):
            end += 1
        if end - first >= _FEWEST:
            found[first + 1 : end - 1] = [first + 1] * (end - first - _KEPT + 1)
        first = end
    return found


def _identical(one: list[Any], place: int, other: list[Any], its_place: int) -> bool:
    """Whether two layers have equal descriptions, except for what is the place of each."""
    if len(one) != len(other):
        return False
    return all(a is b or a == b or (a == place and b == its_place) for a, b in zip(one, other, strict=True))


def _description(layer: nn.Module) -> list[Any]:
    """Everything that a layer has, down to its smallest part."""
    found: list[Any] = []
    for name, module in layer.named_modules():
        found += [name, type(module)]
        for key, value in vars(module).items():
            if key in _SPECS:
                found += [key, *((of, _spec(tensor)) for of, tensor in value.items())]
            elif key != "_modules":
                found += [key, len(value) if key.endswith("_hooks") else value]
    return found


def _spec(tensor: torch.Tensor | None) -> Any:
    return tensor if tensor is None else (tensor.shape, tensor.stride(), tensor.dtype, tensor.requires_grad)


@dataclass(frozen=True)
class Stretch:
    """Segments that are recorded as one: a window, or an evaluation.

    ``ends``: how many events each had at the end; ``left``: the storages of each that were there then.
    """

    segments: list[Segment]
    ends: list[int]
    left: list[list[int]]

    @classmethod
    def ended(cls, segments: list[Segment]) -> Stretch:
        """The newest segments, at their end."""
        dead = {-1 - event for segment in segments for event in segment.events if event < 0}
        left = [sorted(set(range(s.first, s.first + len(s.op))) - dead) for s in segments]
        return cls(segments, [len(s.events) for s in segments], left)

    def places(self) -> dict[int, tuple[int, int]]:
        """Of what is left: the segment, and which of those left there it is."""
        return {number: (at, rank) for at, left in enumerate(self.left) for rank, number in enumerate(left)}

    def form(self, before: Stretch | None) -> list[Any]:
        """All but sizes and calls: equal where one stretch does as another, each seen from the one before it."""
        earlier, start = {} if before is None else before.places(), self.segments[0].first
        return [
            (
                s.kind,
                s.op,
                s.module,
                s.tag,
                s.lane,
                s.calls.lanes,
                births_before_phases(s),
                _gaps(s, end, start, earlier),
            )
            for s, end in zip(self.segments, self.ends, strict=True)
        ]

    def renews(self, before: Stretch | None) -> bool:
        """Whether it leaves as much as it frees of the stretch before it, at the same places, and frees no more."""
        start = self.segments[0].first
        freed = {-1 - e for s, end in zip(self.segments, self.ends, strict=True) for e in s.events[:end] if e < 0}
        earlier = {} if before is None else before.places()
        return {earlier.get(number) for number in freed if number < start} == set(self.places().values())


def _gaps(segment: Segment, end: int, start: int, earlier: dict[int, tuple[int, int]]) -> list[list[tuple[int, ...]]]:
    """What is freed between two births: of the stretch itself by its number there, and of the one before it."""
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
    """What was recorded of a model without most of its identical layers; the whole one has as many stretches."""

    log: EventLog
    stretches: list[Stretch]
    lengths: list[dict[str, Any]]
    layers: Layers


class Whole:
    """Writes stretches of the whole model. ``stretches`` are all so far; the caller adds to them."""

    def __init__(self, log: EventLog, stretches: list[Stretch], short: Shortened) -> None:
        self._log, self._stretches, self._short = log, stretches, short
        self._forms = [each.form(before) for each, before in _with_previous(short.stretches)]
        self._run: list[int] = []  # the numbers of those that others can be written by

    def ran(self) -> None:
        """The newest stretch was run."""
        number = len(self._stretches) - 1
        if self._stretches[number].renews(self._before(number)):
            self._run.append(number)

    def write(self, shape: dict[str, int]) -> bool:
        """Write down the next stretch, if one that was run shows what it is."""
        return any(self._write_like(number, shape) for number in self._run)

    def _write_like(self, like: int, shape: dict[str, int]) -> bool:
        number = len(self._stretches)
        if self._forms[like] != self._forms[number]:
            return False
        template, short = self._stretches[like], self._short.stretches
        parts = zip(template.segments, short[like].segments, short[number].segments, strict=True)
        found = [self._spread(*part) for part in parts]
        explained = [each for each in found if each is not None]
        if len(explained) < len(found):
            return False
        now = self._renewed(self._before(like), self._before(number))
        for segment, end, (sizes, calls) in zip(template.segments, template.ends, explained, strict=True):
            self._log.write(segment, end, now, shape, sizes, calls)
        written = Stretch.ended(self._log.segments[-len(template.segments) :])
        self._log.renew(self._renewed(self._before(number), written))
        return True

    def _before(self, number: int) -> Stretch | None:
        return self._stretches[number - 1] if number else None

    @staticmethod
    def _renewed(old: Stretch | None, new: Stretch | None) -> dict[int, int]:
        """For what one stretch left, what another left in its place."""
        at = {} if new is None else {place: number for number, place in new.places().items()}
        return {} if old is None else {number: at[place] for number, place in old.places().items() if place in at}

    def _spread(self, whole: Segment, short: Segment, asked: Segment) -> _Found | None:
        """The sizes and the calls that the whole model has where the shortened one has those of ``asked``.

        None where the shortened one does not even explain the segment of the whole one that was run.
        """
        if short.sizes() == asked.sizes() and short.calls == asked.calls:
            return whole.sizes(), [call for _, call in _calls(self._log, whole)]
        births = self._places(_births(self._log, whole), _births(self._short.log, short))
        calls = self._places(_calls(self._log, whole), _calls(self._short.log, short))
        if births is None or calls is None:
            return None
        sizes, made = asked.sizes(), _calls(self._short.log, asked)
        return [sizes[place] for place in births], [made[place][1] for place in calls]

    def _places(self, whole: list[Any], short: list[Any]) -> list[int] | None:
        """For each of the whole model's the place of what stands for it; None if it is not equal, or one is left."""
        places = defaultdict(list)
        for place, (lane, _) in enumerate(short):
            places[lane].append(place)
        left = {lane: iter(places[self._short.layers.standing_in(lane)]) for lane, _ in whole}
        found = [next(left[lane], -1) for lane, _ in whole]
        explained = all(place >= 0 and short[place][1] == row for place, (_, row) in zip(found, whole, strict=True))
        return found if explained and all(next(rest, None) is None for rest in left.values()) else None


def _with_previous(stretches: list[Stretch]) -> Any:
    return zip(stretches, [None, *stretches], strict=False)


def _births(log: EventLog, segment: Segment) -> list[Any]:
    """The lane of each birth, and its size and operation, without the distance that a padded copy's name ends with."""
    names = [name.rsplit(":", 1)[0] if name.startswith("pad:") else name for name in log.ops.numbers]
    rows = zip(segment.lane, segment.sizes(), segment.op, strict=True)
    return [(lane, (size, names[op])) for lane, size, op in rows]


def _calls(log: EventLog, segment: Segment) -> list[tuple[int, tuple[Call, Numbers]]]:
    kinds, calls = list(log.calls.numbers), segment.calls
    return [(lane, (kinds[k], n)) for lane, k, n in zip(calls.lanes, calls.kinds, calls.numbers, strict=True)]
