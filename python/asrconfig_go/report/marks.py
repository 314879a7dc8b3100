"""What is marked in every chart of a run beside alerts: evaluations, checkpoints, gaps, what the guard did."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ..training.run_record import RunRecord
from .timeline import Line, Moment, Timeline, gap_limit

_BANDS = {"evaluation": "evaluation", "checkpoint": "checkpoint"}


@dataclass(frozen=True)
class Band:
    """A time in which something lasted."""

    begin_s: float
    end_s: float
    kind: str  # "evaluation", "checkpoint" or "gap"


def bands(line: Timeline) -> tuple[Band, ...]:
    """Evaluations and checkpoints by their steps, and gaps in the samples."""
    found = [band for kind in _BANDS for band in _lasting(line.step_row(lambda s, i: s.spent_s[i] or 0.0, kind), kind)]
    for source in line.leads:
        times = source.run_log.memory.times_s
        limit, pairs = gap_limit(times), itertools.pairwise(times)
        found += [Band(a + source.offset_s, b + source.offset_s, "gap") for a, b in pairs if b - a > limit]
    return tuple(sorted(found, key=lambda band: band.begin_s))


def _lasting(line: Line, kind: str) -> list[Band]:
    """Entries that follow one another are one band."""
    found: list[Band] = []
    for end, spent in line.known:
        begin = end - spent
        if found and begin <= found[-1].end_s + 0.5 * spent + 0.05:
            found[-1] = Band(found[-1].begin_s, end, kind)
        else:
            found.append(Band(begin, end, kind))
    return found


def guarded(line: Timeline, record: RunRecord | None, told: Collection[str] = ()) -> list[Moment]:
    """What the guard did and the callback has not ``told``, at the time of its step, as far as that is known."""
    if record is None:
        return []
    known = line.step_row(lambda s, i: float(s.number[i])).known
    met = [(e.global_step, "guard", str(e)) for e in record.events]
    met += [(r.step, "restart", str(r)) for r in record.restarts]
    placed = [(_time_of(known, step), kind, text) for step, kind, text in met if text not in told]
    return [Moment(at, "guard", "", f"{kind}: {text}") for at, kind, text in placed if at is not None]


def _time_of(known: Sequence[tuple[float, float]], step: int) -> float | None:
    """When the first step with at least this number ended."""
    return next((t for t, number in known if number >= step), known[-1][0] if known else None)
