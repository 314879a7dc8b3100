"""The histogram of durations, as characters and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..view.markup import BAR_COLOUR, LIMIT_COLOUR, escaped, share, svg
from ..view.units import plural

if TYPE_CHECKING:
    from .profile import Histogram

_BARS, _BOTTOM = 130, 18  # pixels
_ROW = 14  # of labels above the bars
_WIDE_ENOUGH = 0.045  # of the width, for the figure of a band


@dataclass(frozen=True)
class Mark:
    """A line at ``seconds``; a ``limit`` is drawn dashed, and bars beyond it pale if it ``cuts``."""

    seconds: float
    label: str
    limit: bool = False
    cuts: bool = False


@dataclass(frozen=True)
class Band:
    """A range of durations that ends at ``up_to_s``, with a short ``label`` and what is to be known of it."""

    up_to_s: float
    label: str
    title: str


def histogram_lines(h: Histogram, width: int = 40) -> list[str]:
    """One bar a bin, scaled to the tallest."""
    tallest = max(h.counts, default=0)
    return [
        f"  {low:7.2f}–{high:7.2f} s |{'█' * max(round(width * n / tallest), int(n > 0)):<{width}}| {n}"
        for low, high, n in zip(h.edges_s, h.edges_s[1:], h.counts, strict=False)
    ]


def histogram_svg(h: Histogram, marks: Sequence[Mark] = (), bands: Sequence[Band] = (), described: str = "") -> str:
    """Inline SVG in percent of the width: bars with their counts as tooltips, bands, marks, and seconds below."""
    shown = [mark for mark in marks if h.edges_s[0] <= mark.seconds <= h.edges_s[-1]]
    first = 1 if bands else 0
    axis = _Axis(h.edges_s[0], h.edges_s[-1], _ROW * (len(shown) + first))
    shown.sort(key=lambda mark: _row_key(axis.at(mark.seconds)))
    body = _bands(bands, axis) + _bars(h, axis, min((m.seconds for m in marks if m.cuts), default=None))
    placed = [(mark, _ROW * (first + row)) for row, mark in enumerate(shown)]
    body += "".join(_line(mark, axis, y) for mark, y in placed)
    body += "".join(_name(mark, axis, y) for mark, y in placed)
    return svg(body + _ticks(h, axis), "clips by duration", height=axis.floor + _BOTTOM, described=described)


class _Axis:
    """Seconds from left to right; bars stand on ``floor`` and begin below the ``top`` that labels take, in pixels."""

    def __init__(self, low: float, high: float, top: int) -> None:
        self._low, self._span = low, max(high - low, 1e-9)
        self.top, self.floor = top, top + _BARS

    def at(self, seconds: float) -> float:
        return min(max((seconds - self._low) / self._span, 0.0), 1.0)


def _bars(h: Histogram, axis: _Axis, cut: float | None) -> str:
    tallest, body = max(h.counts, default=0) or 1, ""
    for n, low, high in zip(h.counts, h.edges_s, h.edges_s[1:], strict=False):
        height = max((_BARS - 6) * n / tallest, 1.5) if n else 0.0
        pale = ' fill-opacity="0.35"' if cut is not None and low >= cut else ""
        body += (
            f'<rect class="asrconfig-bar" x="{share(axis.at(low))}" y="{axis.floor - height:.1f}" '
            f'width="{share(0.92 * (axis.at(high) - axis.at(low)))}" height="{height:.1f}" fill="{BAR_COLOUR}"{pale}>'
            f"<title>{low:.6g}–{high:.6g} s: {plural(n, 'clip')}</title></rect>"
        )
    return body


def _ticks(h: Histogram, axis: _Axis) -> str:
    """A line below the bars, and a few of their edges."""
    body = f'<line x1="0" x2="100%" y1="{axis.floor}" y2="{axis.floor}" stroke="currentColor" stroke-opacity="0.5"/>'
    every = max(1, round(len(h.edges_s) / 8))
    for edge in h.edges_s[::every]:
        x = axis.at(edge)
        label = f"{edge:.4g}" + (" s" if edge == h.edges_s[0] else "")
        body += _label(x, axis.floor + 14, label, _anchor(x, 0.0, 0.97))
    return body


def _anchor(x: float, left: float, right: float) -> str:
    return "start" if x <= left else "end" if x >= right else "middle"


def _label(x: float, y: int, words: str, anchor: str, dx: int = 0) -> str:
    return (
        f'<text class="asrconfig-label" x="{share(x)}" dx="{dx}" y="{y}" text-anchor="{anchor}" fill="currentColor">'
        f"{escaped(words)}</text>"
    )


def _row_key(x: float) -> tuple[bool, float]:
    """Labels lie inwards of their lines; so no label is crossed by the line of one in a row below."""
    return (x > 0.5, -x if x > 0.5 else x)


def _line(mark: Mark, axis: _Axis, y: int) -> str:
    """From beside the mark's label down to the bars' floor."""
    x = share(axis.at(mark.seconds))
    colour, dashes = (LIMIT_COLOUR, ' stroke-dasharray="5 3"') if mark.limit else ("currentColor", "")
    css = ' class="asrconfig-limit"' if mark.limit else ""
    return (
        f'<line{css} x1="{x}" x2="{x}" y1="{y + 2}" y2="{axis.floor}" stroke="{colour}" stroke-opacity="0.8"{dashes}/>'
    )


def _name(mark: Mark, axis: _Axis, y: int) -> str:
    """The mark's label, on the side where there is room."""
    x = axis.at(mark.seconds)
    anchor, dx = ("end", -4) if x > 0.5 else ("start", 4)
    return _label(x, y + 11, mark.label, anchor, dx)


def _bands(bands: Sequence[Band], axis: _Axis) -> str:
    """Every other band shaded, each with its label at the top where it is wide enough."""
    body, low = "", 0.0
    for i, band in enumerate(bands):
        high = axis.at(band.up_to_s)
        body += (
            f'<rect x="{share(low)}" y="0" width="{share(high - low)}" height="{axis.floor}" fill="currentColor" '
            f'fill-opacity="{0.09 if i % 2 else 0.03}"><title>{escaped(band.title)}</title></rect>'
        )
        if high - low >= _WIDE_ENOUGH:
            body += _label((low + high) / 2, 11, band.label, "middle")
        low = high
    return body
