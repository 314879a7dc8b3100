"""Memory estimates for notebooks: HTML with inline SVG, without scripts and without a plotting library."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..view.markup import LIMIT_COLOUR, colour_of, escaped, folded, round_step, svg
from .memory_text import (
    NO_MODULE,
    evaluation_words,
    heading,
    ordered,
    peak_moment,
    peaks,
    phases,
    remarks,
    run_rows,
    run_verdict,
    size,
    verdict,
)

if TYPE_CHECKING:
    from .estimate import MemoryEstimate, Timeline
    from .run_memory import RunEstimate

_SLACK, _CONTEXT = "reserved, not held", "context"
_DASHES = 'stroke-dasharray="5 3"'
_HALO = 'paint-order="stroke" stroke="white" stroke-width="3"'
_AT_RIGHT = 'text-anchor="end" fill="currentColor"'
_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 720, 190, 46, 22, 14


def estimate_html(e: MemoryEstimate) -> str:
    """Verdict, one stacked bar with its legend, the timeline, and the modules behind a fold."""
    colour = {True: "#2e7d32", False: "#c62828", None: "#616161"}[e.fits]
    parts = [
        f"<div><b>{escaped(heading(e))}</b></div>",
        f'<div style="border-left:4px solid {colour};padding-left:8px;margin:6px 0">{escaped(verdict(e))}<br>'
        f"<small>{escaped(peaks(e))}</small></div>",
        _bar(e),
        _legend(e),
    ]
    if e.timeline is not None and len(e.timeline.event) > 1:
        parts.append(_timeline(e, e.timeline))
    moment = peak_moment(e)
    facts = [f"at the peak: {moment}"] if moment else []
    facts.append(f"peaks by phase: {phases(e)}")
    facts += [evaluation_words(e.evaluation)] if e.evaluation is not None else []
    facts += remarks(e)
    parts += [f"<div><small>{escaped(fact)}</small></div>" for fact in facts]
    parts += [_modules(e), _terms(e)]
    return f'<div style="font-family:sans-serif;max-width:{_WIDTH}px;line-height:1.4">{"".join(parts)}</div>'


def _bar(e: MemoryEstimate) -> str:
    """What holds the peak, against the GPU's memory where one is known."""
    parts = ordered(e.at_peak.components)
    held = sum(n for _, n in parts)
    slack = max(0, e.peak_reserved - held)
    whole = max(e.target.available_bytes or 0, e.peak_device or e.peak_reserved, 1)
    rows = [*parts, (_SLACK, slack), (_CONTEXT, e.target.context_bytes or 0)]
    body, x = "", 0.0
    for name, n in rows:
        width = _WIDTH * n / whole
        body += (
            f'<rect x="{x:.1f}" y="0" width="{width:.1f}" height="22" fill="{colour_of(name)}">'
            f"<title>{escaped(name)}: {size(n)}</title></rect>"
        )
        x += width
    if e.target.available_bytes:
        edge = _WIDTH * e.target.available_bytes / whole
        body += f'<rect x="0" y="0" width="{edge:.1f}" height="22" fill="none" stroke="currentColor"/>'
        body += f'<rect x="{edge - 2:.1f}" y="0" width="2" height="22" fill="{LIMIT_COLOUR}"/>' if x > edge else ""
    return svg(body, verdict(e), height=22, view_width=_WIDTH)


def _legend(e: MemoryEstimate) -> str:
    whole = max(e.peak_allocated, 1)
    rows = [(name, f"{size(n)} ({n / whole:.0%})") for name, n in ordered(e.at_peak.components)]
    rows.append((_SLACK, size(e.peak_reserved - e.peak_allocated)))
    rows += [(_CONTEXT, size(e.target.context_bytes))] if e.target.context_bytes else []
    chips = "".join(
        f'<span style="white-space:nowrap;margin-right:12px"><span style="display:inline-block;width:10px;height:10px;'
        f'background:{colour_of(name)}"></span> {escaped(name)} {held}</span> '
        for name, held in rows
    )
    return f'<div style="margin:4px 0 8px"><small>{chips}</small></div>'


def _timeline(e: MemoryEstimate, t: Timeline) -> str:
    """Stacked components over the run's events, the reserved memory above them, the limit, and the phases."""
    limit = e.target.limit_bytes
    top: float = max(*t.reserved, *t.allocated, 1)
    shown_limit = limit is not None and limit <= 1.6 * top
    top = max(top, limit) * 1.04 if shown_limit and limit is not None else top * 1.04
    axes = _Axes(t.event[0], max(t.event[-1], t.event[0] + 1), top)
    body = "".join(_bands(t, axes)) + _phase_marks(e, t, axes)
    body += _line(t.event, t.reserved, axes, "currentColor", "reserved")
    if shown_limit and limit is not None:
        y = axes.y(limit)
        body += f'<line x1="{_LEFT}" x2="{_WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="{LIMIT_COLOUR}" {_DASHES}/>'
        label = f"limit {size(limit)}</text>"
        body += f'<text x="{_WIDTH}" y="{y - 3:.1f}" text-anchor="end" fill="{LIMIT_COLOUR}" {_HALO}>{label}'
    return svg(body + axes.ticks(), "memory over the events of the run", height=_HEIGHT, view_width=_WIDTH)


class _Axes:
    def __init__(self, first: int, last: int, top: float) -> None:
        self._first, self._span, self._top = first, last - first, top

    def x(self, event: float) -> float:
        return _LEFT + (_WIDTH - _LEFT) * (event - self._first) / self._span

    def y(self, held: float) -> float:
        return _HEIGHT - _BOTTOM - (_HEIGHT - _BOTTOM - _TOP) * held / self._top

    def ticks(self) -> str:
        """Round sizes at the left, and their unit."""
        unit, name = (2**30, "GiB") if self._top >= 2**30 else (2**20, "MiB")
        step = round_step(self._top / unit)
        marks = "".join(
            f'<text x="{_LEFT - 5}" y="{self.y(n * step * unit) + 4:.1f}" {_AT_RIGHT}>{n * step:g}</text>'
            for n in range(int(self._top / unit / step) + 1)
        )
        return marks + f'<text x="0" y="{_HEIGHT - 6}" fill="currentColor">{name}</text>'


def _bands(t: Timeline, axes: _Axes) -> list[str]:
    below = [0] * len(t.event)
    bands = []
    for name, _ in ordered({name: max(held, default=0) for name, held in t.components.items()}):
        above = [a + b for a, b in zip(below, t.components[name], strict=True)]
        points = _steps(t.event, above, axes) + _steps(t.event, below, axes)[::-1]
        bands.append(
            f'<polygon points="{_joined(points)}" fill="{colour_of(name)}"><title>{escaped(name)}</title></polygon>'
        )
        below = above
    return bands


def _steps(events: Sequence[int], values: Sequence[int], axes: _Axes) -> list[tuple[float, float]]:
    return [(axes.x(event), axes.y(value)) for event, value in zip(events, values, strict=True)]


def _joined(points: list[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _line(events: Sequence[int], values: Sequence[int], axes: _Axes, colour: str, name: str) -> str:
    points = _joined(_steps(events, values, axes))
    return (
        f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"><title>{name}</title></polyline>'
    )


def phase_starts(e: MemoryEstimate, t: Timeline) -> list[tuple[int, str]]:
    """The event at which each phase begins, with its name; the phases of one segment name it once."""
    starts: list[tuple[int, str]] = []
    for event, number, before in zip(t.event, t.phase, (-1, *t.phase), strict=False):
        if number != before:
            starts.append((event, e.phases[number].phase))
    return starts


def _phase_marks(e: MemoryEstimate, t: Timeline, axes: _Axes) -> str:
    body, free_from = "", 0.0
    for event, name in phase_starts(e, t):
        x = axes.x(event)
        body += (
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}" stroke="currentColor" '
            f'stroke-opacity="0.35" stroke-dasharray="2 3"><title>{escaped(name)}</title></line>'
        )
        if x >= free_from:
            body += f'<text x="{x + 2:.1f}" y="{_HEIGHT - 8}" fill="currentColor">{escaped(name)}</text>'
            free_from = x + 7 * len(name) + 8
    return body


def _modules(e: MemoryEstimate) -> str:
    if not e.at_peak.modules:
        return ""
    rows = "".join(
        f'<tr><td style="text-align:right">{size(m.bytes)}</td><td style="text-align:left">'
        f"<code>{escaped(m.module or NO_MODULE)}</code></td></tr>"
        for m in e.at_peak.modules
    )
    return _rows_folded("what holds it, by module", rows)


def _rows_folded(title: str, rows: str) -> str:
    return folded(f"<small>{title}</small>", f'<table style="font-size:smaller">{rows}</table>')


def _terms(e: MemoryEstimate) -> str:
    if not e.terms:
        return ""
    rows = "".join(
        f'<tr><td style="text-align:right">{size(t.bytes)}</td><td style="text-align:left" title="{escaped(t.source)}">'
        f"{escaped(t.name)}</td><td style='text-align:left'><code>{escaped(t.formula)}</code></td></tr>"
        for t in e.terms
    )
    return _rows_folded("by which formulas", rows)


def run_html(r: RunEstimate) -> str:
    """Peaks over the orders as a table."""
    head = "".join(f"<th>{name}</th>" for name in ("", "median", "p99", "worst"))
    rows = "".join(
        f"<tr><td>{name}</td><td>{size(s.median)}</td><td>{size(s.p99)}</td><td>{size(s.worst)}</td></tr>"
        for name, s in run_rows(r)
    )
    alone = r.largest_batch_only
    return (
        '<div style="font-family:sans-serif;line-height:1.4">'
        f"<b>{escaped(f'{r.model}, batch {r.batch}, {r.clips} clips up to {r.longest_s:.1f} s')}</b><br>"
        f"{r.steps} steps in {len(r.seeds)} orders ({escaped(r.order)}): {escaped(run_verdict(r))}"
        f"<table><tr>{head}</tr>{rows}</table><small>the longest clips' batch alone: allocated "
        f"{size(alone.peak_allocated)}, reserved {size(alone.peak_reserved)}</small></div>"
    )
