"""The horizontal axis of a run's charts: seconds, or optimizer steps; and lines thinned so that their peaks stay."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence

from .._base.checks import checked
from .._base.choices import ReportAxis
from .._base.errors import InvalidArgumentError
from ..view.markup import round_step
from ..view.quantities import short
from .timeline import Line, Timeline, gap_limit

COLUMNS = 480  # of a chart: a pixel or two each
_UNITS = ((1.0, "s"), (60.0, "min"), (3600.0, "h"), (86400.0, "d"))
_NICE = (1, 2, 5, 10, 15, 20, 30)

Points = list[tuple[int, float]]


class Axis:
    """Places on the axis of a timeline, ``by`` "time" or "steps"."""

    def __init__(self, line: Timeline, by: ReportAxis = "time") -> None:
        checked("by", by, ReportAxis)
        self.low: float
        self.high: float
        self.divisor: float
        self.unit: str
        self.by, self._steps = by, _numbered(line) if by == "steps" else ([], [])
        self._columns: dict[int, tuple[Sequence[float], list[int]]] = {}
        if by == "steps":
            if not self._steps[0]:
                raise InvalidArgumentError("the run told of no training steps", 'pass by="time"')
            self.low, self.high = self._steps[1][0], self._steps[1][-1]
            self.divisor, self.unit = 1.0, "step"
        else:
            self.low, self.high = 0.0, line.duration_s
            self.divisor, self.unit = next((d, u) for d, u in reversed(_UNITS) if self.high >= 2 * d or d == 1)
        self.high = max(self.high, self.low + 1e-9)

    def value(self, at_s: float) -> float:
        """Seconds of the run in the axis' own measure: seconds or step numbers."""
        if self.by == "time":
            return at_s
        times, numbers = self._steps
        i = bisect_right(times, at_s)
        if i in (0, len(times)):
            return numbers[min(i, len(times) - 1)]
        part = (at_s - times[i - 1]) / max(times[i] - times[i - 1], 1e-9)
        return numbers[i - 1] + part * (numbers[i] - numbers[i - 1])

    def at(self, at_s: float) -> float:
        """Its share of the width, 0 to 1."""
        return min(max((self.value(at_s) - self.low) / (self.high - self.low), 0.0), 1.0)

    def ticks(self) -> list[tuple[float, str]]:
        """Shares of the width, each with its label; the first has the unit."""
        low, high = self.low / self.divisor, self.high / self.divisor
        step = _nice_step(high - low, self.unit)
        first = int(low / step) + (low % step > 1e-9)
        marks = [n * step for n in range(first, int(high / step + 1e-9) + 1)]
        return [((mark - low) / (high - low), self._label(mark, mark == marks[0])) for mark in marks]

    def _label(self, mark: float, first: bool) -> str:
        if not first:
            return short(mark)
        return f"step {short(mark)}" if self.by == "steps" else f"{short(mark)} {self.unit}"

    def columns_of(self, times: Sequence[float]) -> list[int]:
        """The column of each point; asked often for the same times."""
        known = self._columns.get(id(times))
        if known is None:
            known = self._columns[id(times)] = (times, [self._column(t) for t in times])
        return known[1]

    def _column(self, at_s: float) -> int:
        return min(int(COLUMNS * self.at(at_s)), COLUMNS - 1)


def _numbered(line: Timeline) -> tuple[list[float], list[float]]:
    """Times and numbers of training steps; numbers of steps that were made again do not go back."""
    known = line.step_row(lambda steps, i: float(steps.number[i])).known
    numbers, highest = [], 0.0
    for _, number in known:
        highest = max(highest, number)
        numbers.append(highest)
    return [t for t, _ in known], numbers


def _nice_step(extent: float, unit: str) -> float:
    if unit in ("s", "min") and extent > 6:
        return next((n for n in _NICE if extent / n <= 8), round_step(extent))
    return max(round_step(extent), 1.0 if unit == "step" else 0.0)


def thinned(line: Line, axis: Axis, choose: Callable[[list[float]], float]) -> list[Points]:
    """Pieces without gaps: for each column with points the value that ``choose`` takes of those that are known."""
    if not line.times:
        return []
    limit = gap_limit(line.times)
    pieces: list[Points] = [[]]
    held: list[float] = []
    column, before = -1, line.times[0]
    for t, place, value in zip(line.times, axis.columns_of(line.times), line.values, strict=True):
        if place != column or t - before > limit:
            _close(pieces, column, held, choose)
            held, column = [], place
            if t - before > limit:
                pieces.append([])
        if value is not None:
            held.append(value)
        before = t
    _close(pieces, column, held, choose)
    return [piece for piece in pieces if piece]


def _close(pieces: list[Points], column: int, held: list[float], choose: Callable[[list[float]], float]) -> None:
    """End a column; one of which nothing is known ends the piece, too."""
    if held:
        pieces[-1].append((column, choose(held)))
    elif column >= 0:
        pieces.append([])
