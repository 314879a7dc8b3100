"""One timeline from the run logs of a run's monitors.

Those of ranks and nodes are side by side, those of restarts one after another. Times are seconds from the begin of
the earliest run log.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from statistics import median
from typing import TYPE_CHECKING

from .run_files import Source

if TYPE_CHECKING:
    from ..monitor.run_log import Event, RunLogGPU, StepSeries

Values = Sequence[float | None]


@dataclass(frozen=True)
class Line:
    """Values over time; None where something is not known."""

    times: Sequence[float]
    values: Values

    @property
    def known(self) -> list[tuple[float, float]]:
        """The points that are known."""
        return [(t, v) for t, v in zip(self.times, self.values, strict=True) if v is not None]


@dataclass(frozen=True)
class GPUView:
    """One GPU of the run, with the run logs that tell of it and its number in each."""

    label: str
    gpu: RunLogGPU
    places: tuple[tuple[Source, int], ...]


@dataclass(frozen=True)
class Moment:
    """Something that happened once; ``where`` is the label of a GPU, or ""."""

    at_s: float
    kind: str
    where: str
    text: str


class Timeline:
    """The sources of a run, in order."""

    def __init__(self, sources: Iterable[Source]) -> None:
        self.sources: tuple[Source, ...] = tuple(sources)
        self.duration_s: float = max((source.span[1] for source in self.sources), default=0.0)

    @cached_property
    def leads(self) -> tuple[Source, ...]:
        """Run logs that follow one another: of those at one time the one that knows steps, and the first by name."""
        return _chain(self.sources)

    @cached_property
    def gpus(self) -> tuple[GPUView, ...]:
        """Every GPU once, also where the monitors of several ranks saw it."""
        return tuple(self._view(places) for places in self._seen)

    @cached_property
    def _seen(self) -> list[list[tuple[Source, int]]]:
        """Of each GPU the run logs that tell of it."""
        seen: dict[object, list[tuple[Source, int]]] = {}
        for source in self.sources:
            for i, gpu in enumerate(source.run_log.gpus):
                seen.setdefault(gpu.uuid or (source.name, i), []).append((source, i))
        return list(seen.values())

    @cached_property
    def _labels(self) -> dict[tuple[str, int], str]:
        pairs = zip(self._seen, self.gpus, strict=True)
        return {(source.name, i): view.label for places, view in pairs for source, i in places}

    def _view(self, places: list[tuple[Source, int]]) -> GPUView:
        number = {source.name: i for source, i in places}
        chain = tuple((source, number[source.name]) for source in _chain(source for source, _ in places))
        first, i = chain[0]
        node = first.name if len(self.nodes) > 1 else ""
        return GPUView(f"{node} GPU {i}".strip(), first.run_log.gpus[i], chain)

    @cached_property
    def nodes(self) -> tuple[tuple[Source, ...], ...]:
        """The run logs of each machine, told apart by its GPUs."""
        groups: dict[tuple[str, ...], list[Source]] = {}
        for source in self.sources:
            groups.setdefault(_uuids(source), []).append(source)
        return tuple(_chain(group) for group in groups.values())

    def label_of(self, source: Source, gpu: int) -> str:
        """The label of a GPU that a run log calls ``gpu``; "" for the host."""
        return self._labels.get((source.name, gpu), f"GPU {gpu}") if gpu >= 0 else ""

    def used(self, view: GPUView) -> Line:
        """Memory in use, by the driver."""
        return joined((s, Line(s.run_log.memory.times_s, s.run_log.memory.gpu_used_bytes[i])) for s, i in view.places)

    def gpu_row(self, view: GPUView, name: str) -> Line:
        """A column of the slow series of a GPU."""
        return joined(
            (s, Line(s.run_log.activity.times_s, getattr(s.run_log.activity.gpus[i], name))) for s, i in view.places
        )

    def host_row(self, node: Iterable[Source], name: str) -> Line:
        """A column of the slow series of a machine."""
        return joined((s, Line(s.run_log.activity.times_s, getattr(s.run_log.activity, name))) for s in node)

    def host_used(self, node: Iterable[Source]) -> Line:
        """RAM in use."""
        return joined((s, Line(s.run_log.memory.times_s, s.run_log.memory.host_used_bytes)) for s in node)

    def torch(self, view: GPUView, name: str) -> Line:
        """A column of PyTorch's counters, of the steps on a GPU."""
        points: list[tuple[float, float | None]] = []
        for source in self.sources:
            steps = source.run_log.steps
            mine = {i for i in range(len(source.run_log.gpus)) if self.label_of(source, i) == view.label}
            if not mine:
                continue
            column = getattr(steps, name)
            points += [
                (t + source.offset_s, v) for t, g, v in zip(steps.times_s, steps.gpu, column, strict=True) if g in mine
            ]
        points.sort(key=lambda point: point[0])
        return Line([t for t, _ in points], [v for _, v in points])

    def headroom(self, view: GPUView) -> Line:
        """What was left at the peak of each step: less than at its end, when most of it has been freed again."""
        ends, held, peaks = (self.torch(view, f"{name}_bytes") for name in ("headroom", "allocated", "peak_allocated"))
        rows = zip(ends.values, held.values, peaks.values, strict=True)
        return Line(ends.times, [_at_peak(end, now, peak) for end, now, peak in rows])

    def step_row(self, value: Callable[[StepSeries, int], float | None], kind: str = "train") -> Line:
        """Something of each step of the leading run logs."""
        lines = []
        for source in self.leads:
            steps = source.run_log.steps
            chosen = [i for i, k in enumerate(steps.kind) if k == kind]
            lines.append((source, Line([steps.times_s[i] for i in chosen], [value(steps, i) for i in chosen])))
        return joined(lines)

    def events(self) -> list[Moment]:
        """Of all run logs, in order; what several monitors of one machine saw at about the same time is told once."""
        moments: list[Moment] = []
        for source in self.sources:
            moments += [self._moment(source, event) for event in source.run_log.events]
        moments.sort(key=lambda moment: moment.at_s)
        last: dict[tuple[str, str, str], float] = {}
        kept = []
        for moment in moments:
            key = (moment.kind, moment.where, moment.text)
            if len(self.sources) == 1 or moment.at_s - last.get(key, -10.0) > 2.0:
                kept.append(moment)
            last[key] = moment.at_s
        return kept

    def _moment(self, source: Source, event: Event) -> Moment:
        return Moment(event.at_s + source.offset_s, event.kind, self.label_of(source, event.gpu), event.text)


def _uuids(source: Source) -> tuple[str, ...]:
    return tuple(gpu.uuid for gpu in source.run_log.gpus)


def _chain(sources: Iterable[Source]) -> tuple[Source, ...]:
    chain: list[Source] = []
    for source in sorted(sources, key=lambda s: (not s.run_log.steps.number, s.name, s.offset_s)):
        begin, end = source.span
        if all(end <= other.span[0] or begin >= other.span[1] for other in chain):
            chain.append(source)
    return tuple(sorted(chain, key=lambda s: s.offset_s))


def _at_peak(end: float | None, now: float | None, peak: float | None) -> float | None:
    if end is None or now is None or peak is None:
        return end
    return max(0.0, end - max(0.0, peak - now))


def joined(lines: Iterable[tuple[Source, Line]]) -> Line:
    """Lines of run logs that follow one another."""
    lines = list(lines)
    if len(lines) == 1 and not lines[0][0].offset_s:
        return lines[0][1]
    times: list[float] = []
    values: list[float | None] = []
    for source, line in lines:
        times += [t + source.offset_s for t in line.times]
        values += line.values
    return Line(times, values)


def spans(times: Sequence[float]) -> tuple[float, ...]:
    """How many seconds each point stands for: until the next one, but not across a gap."""
    return _paces(tuple(times))[0]


def gap_limit(times: Sequence[float]) -> float:
    """Two points that are further apart have a gap between them."""
    return _paces(tuple(times))[1]


@lru_cache(maxsize=32)
def _paces(times: tuple[float, ...]) -> tuple[tuple[float, ...], float]:
    """Spans and limit: many columns share their times."""
    steps = [later - at for at, later in itertools.pairwise(times)]
    if not steps:
        return (0.0,) * len(times), math.inf
    typical = median(steps)
    limit = 3 * typical + 1.0
    return (*(step if step <= limit else typical for step in steps), typical), limit
