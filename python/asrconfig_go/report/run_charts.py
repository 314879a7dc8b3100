"""A panel as inline SVG: as wide as there is room, texts in their own size, no script."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from ..view.markup import LIMIT_COLOUR, escaped, round_step, share, svg
from ..view.quantities import into_run, short
from .axis import COLUMNS, Axis, Points, thinned
from .chart_panels import Panel
from .marks import Band, Marks

_TOP, _PLOT, _BOTTOM = 17, 120, 17  # pixels: numbers of alerts, the lines, the axis
_TALL = 1000  # of the lines' own measure
_APART = 0.016  # of the width, between numbers
_FLOOR = _TOP + _PLOT
_BAND_LOOK = {"evaluation": 0.08, "checkpoint": 0.16, "gap": 0.05}


def chart(panel: Panel, axis: Axis, marks: Marks) -> str:
    """The panel with its marks; where nothing is known, a line that says so."""
    if panel.empty:
        return '<div class="dim small">nothing was sampled</div>'
    mine, top = marks.of(panel.where), panel.top
    body = _grid(panel, top) + "".join(_band(band, axis) for band in mine.bands)
    lines = "".join(_path(thinned(s.line, axis, s.choose), s.colour, s.area, panel.scale * top) for s in panel.series)
    body += (
        f'<svg x="0" y="{_TOP}" width="100%" height="{_PLOT}" viewBox="0 0 {COLUMNS} {_TALL}" '
        f'preserveAspectRatio="none">{lines}</svg>'
    )
    body += _limit(panel, top) + _labels(panel, top) + _moments(mine, axis) + _alerts(mine, axis, marks) + _axis(axis)
    return svg(body, f"{panel.where} {panel.title}".strip(), height=_FLOOR + _BOTTOM, described=described(panel))


def described(panel: Panel) -> str:
    """Each line's highest value, in words."""
    tops = ((s.name, max((v for v in s.line.values if v is not None), default=0.0)) for s in panel.series)
    return ", ".join(f"{name} up to {short(top / panel.scale)} {panel.unit}" for name, top in tops)


def keys(panel: Panel) -> str:
    """What the lines stand for."""
    found = "".join(
        f'<span><span class="swatch" style="background:{s.colour}"></span>{escaped(s.name)}</span>'
        for s in panel.series
    )
    if panel.limit:
        found += f'<span><span class="swatch limit"></span>{escaped(panel.limit[1])}</span>'
    return f'<div class="keys">{found}</div>'


def _path(pieces: Iterable[Points], colour: str, area: bool, whole: float) -> str:
    line, below = "", ""
    for piece in pieces:
        at = [(x, round(_TALL * (1 - min(max(v / whole, 0.0), 1.0)))) for x, v in piece]
        x, y = at[0]
        walk = _walk(at)
        line += f"M{x} {y}{walk}"
        below += f"M{x} {_TALL}V{y}{walk}V{_TALL}Z" if area else ""
    body = f'<path d="{below}" fill="{colour}" fill-opacity="0.22"/>' if area else ""
    return body + (
        f'<path d="{line}" fill="none" stroke="{colour}" stroke-width="1.6" stroke-linejoin="round" '
        f'stroke-linecap="round" vector-effect="non-scaling-stroke"/>'
    )


def _walk(at: Sequence[tuple[int, int]]) -> str:
    """From the first place through all others, by steps: half the text that places would take."""
    steps = [(x - a, y - b) for (a, b), (x, y) in itertools.pairwise(at)]
    return "l" + " ".join(f"{dx} {dy}" if dy >= 0 else f"{dx}{dy}" for dx, dy in steps) if steps else "h1"


def _y(value: float, top: float) -> float:
    return _TOP + _PLOT * (1 - value / top)


def _heights(top: float) -> list[float]:
    step = round_step(top)
    return [n * step for n in range(1, int(top / step + 1e-9) + 1)]


def _grid(panel: Panel, top: float) -> str:
    lines = "".join(_level(_y(mark, top), 0.13) for mark in _heights(top) if _y(mark, top) > _TOP + 1)
    return lines + _level(_FLOOR, 0.5)


def _level(y: float, opacity: float) -> str:
    return f'<line x1="0" x2="100%" y1="{y:.1f}" y2="{y:.1f}" stroke="currentColor" stroke-opacity="{opacity}"/>'


def _labels(panel: Panel, top: float) -> str:
    """The grid's values, over the lines so that they can be read."""
    body = ""
    for n, mark in enumerate(reversed(_heights(top))):
        unit = f" {panel.unit}" if n == 0 else ""
        body += _text(0, _y(mark, top) + 11, f"{short(mark)}{unit}", "start", dx=2)
    return body


def _limit(panel: Panel, top: float) -> str:
    if panel.limit is None:
        return ""
    y = _y(panel.limit[0] / panel.scale, top)
    return (
        f'<line class="asrconfig-limit" x1="0" x2="100%" y1="{y:.1f}" y2="{y:.1f}" stroke="{LIMIT_COLOUR}" '
        f'stroke-dasharray="5 3"><title>{escaped(panel.limit[1])}</title></line>'
    )


def _band(band: Band, axis: Axis) -> str:
    low, high = axis.at(band.begin_s), axis.at(band.end_s)
    width = max(high - low, 0.0012)
    words = f"{band.kind}, from {into_run(band.begin_s)} to {into_run(band.end_s)}"
    return (
        f'<rect class="{band.kind}" x="{share(low)}" y="{_TOP}" width="{share(width)}" height="{_PLOT}" '
        f'fill="currentColor" fill-opacity="{_BAND_LOOK[band.kind]}"><title>{escaped(words)}</title></rect>'
    )


def _moments(marks: Marks, axis: Axis) -> str:
    body = ""
    for moment in marks.moments:
        x, grave = share(axis.at(moment.at_s)), moment.kind == "out_of_memory"
        look = f'class="asrconfig-limit" stroke="{LIMIT_COLOUR}" stroke-width="2"' if grave else 'stroke="currentColor"'
        words = f"{into_run(moment.at_s)} {moment.where} {moment.text}"
        body += (
            f'<line {look} x1="{x}" x2="{x}" y1="{_TOP if grave else _FLOOR - 14}" y2="{_FLOOR}" stroke-opacity="0.75">'
            f"<title>{escaped(words)}</title></line>"
        )
    return body


def _alerts(mine: Marks, axis: Axis, marks: Marks) -> str:
    """A dashed line where each began, a bar above while it held, and its number where there is room."""
    body, last = "", -1.0
    for outcome in mine.alerts:
        low = axis.at(outcome.at_s)
        high = 1.0 if outcome.alert.cleared_s is None else axis.at(outcome.at_s + (outcome.after_s or 0.0))
        css = "critical" if outcome.alert.severity == "critical" else "warn"
        number = marks.alerts.index(outcome) + 1
        body += (
            f'<line class="alert {css}" x1="{share(low)}" x2="{share(low)}" y1="{_TOP}" y2="{_FLOOR}" '
            f'stroke-dasharray="3 3"/><rect class="alert {css}" x="{share(low)}" y="{_TOP - 3}" '
            f'width="{share(max(high - low, 0.002))}" height="3"><title>{escaped(outcome.alert.text)}</title></rect>'
        )
        if low - last > _APART:
            body += _text(low, _TOP - 5, f"{number}", "end" if low > 0.98 else "start", css=f"number {css}")
            last = low
    return body


def _axis(axis: Axis) -> str:
    body = ""
    for x, label in axis.ticks():
        anchor = "start" if x < 0.02 else "end" if x > 0.97 else "middle"
        body += _text(x, _FLOOR + 13, label, anchor)
    return body


def _text(x: float, y: float, words: str, anchor: str, dx: int = 0, css: str = "asrconfig-label") -> str:
    shift = f' dx="{dx}"' if dx else ""
    return (
        f'<text class="{css}" x="{share(x)}"{shift} y="{y:.0f}" text-anchor="{anchor}" fill="currentColor">'
        f"{escaped(words)}</text>"
    )
