"""The card's charts as inline SVG: as wide as there is room, light and dark, no script."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..explain.plan_charts import ink_on
from ..view.markup import LIMIT_COLOUR, escaped, share, svg
from ..view.quantities import percent, short
from .measurements import PARTS, OptionResult, SideResult, Spread

if TYPE_CHECKING:
    from .benchmark_result import BenchmarkResult

PART_COLOURS = dict(zip(PARTS, ("#f28e2b", "#4e79a7", "#59a14f", "#b07aa1", "#8c8c8c"), strict=True))
NEEDED = 0.11  # of a bar's width, to hold a number
_ROW, _BAR, _LABEL = 30, 20, 0.26  # pixels, pixels, share of the width


def speeds(rows: Sequence[tuple[str, Spread]], unit: str) -> str:
    """A bar for each with a whisker from the lowest to the highest."""
    top = 1.12 * max(spread.high for _, spread in rows)
    body, said = "", []
    for i, (name, spread) in enumerate(rows):
        y = i * _ROW
        body += _label(name, y) + _box(0.0, spread.median / top, y, 'class="asrconfig-bar"')
        body += _whisker(spread.low / top, spread.high / top, y)
        body += _text(min(spread.high / top, 0.9), y, short(spread.median), "start", 6)
        said.append(f"{name} {short(spread.median)} {unit}")
    return svg(body, unit, height=_ROW * len(rows), described=", ".join(said))


def parts(sides: Sequence[SideResult]) -> str:
    """What each side's steps consist of, as shares of a step."""
    body, said = "", []
    for i, side in enumerate(sides):
        body += _label(side.name, i * _ROW)
        start, whole = 0.0, max(1.0, sum(side.shares.values()))
        for part, part_share in side.shares.items():
            width = part_share / whole
            body += _box(
                start, start + width, i * _ROW, f'fill="{PART_COLOURS[part]}"', f"{part} {percent(part_share)}"
            )
            if width > NEEDED:
                body += _text(start + width / 2, i * _ROW, percent(part_share), "middle", 0, ink_on(PART_COLOURS[part]))
            start += width
        said.append(f"{side.name}: " + ", ".join(f"{part} {percent(s)}" for part, s in side.shares.items()))
    return svg(body, "parts of a step", height=_ROW * len(sides), described="; ".join(said))


def gains(options: Sequence[OptionResult]) -> str:
    """Each change's speed beside the plan's, with its range; the line is the plan."""
    known = [(each, each.gain) for each in options if each.gain is not None]
    top = 1.12 * max(1.0, *(spread.high for _, spread in known))
    body, said = "", []
    for i, (each, spread) in enumerate(known):
        y, name = i * _ROW, f"{each.option} {each.value}"
        look = 'class="asrconfig-bar"' if each.better else 'fill="currentColor" fill-opacity="0.3"'
        body += (
            _label(name, y) + _box(0.0, spread.median / top, y, look) + _whisker(spread.low / top, spread.high / top, y)
        )
        body += _text(min(spread.high / top, 0.9), y, f"{spread.median:.2f}x", "start", 6)
        said.append(f"{name} {spread.median:.2f} times")
    height = _ROW * len(known)
    body += (
        f'<line class="asrconfig-limit" x1="{_at(1 / top)}" x2="{_at(1 / top)}" y1="0" y2="{height - 6}" '
        f'stroke="{LIMIT_COLOUR}" stroke-dasharray="4 3"/>'
    )
    return svg(body, "speed of single changes beside the plan", height=height, described=", ".join(said))


def part_keys() -> str:
    """What the colours of ``parts`` stand for."""
    found = "".join(
        f'<span><span class="swatch" style="background:{colour}"></span>{part}</span>'
        for part, colour in PART_COLOURS.items()
    )
    return f'<div class="keys">{found}</div>'


def sides_of(r: BenchmarkResult) -> list[SideResult]:
    """Those that were measured, the original first."""
    return [side for side in (r.original, r.plan) if side is not None and side.blocks]


def _at(x: float) -> str:
    """A place in the part of the width behind the names."""
    return share(_LABEL + (1 - _LABEL) * x)


def _label(name: str, y: float) -> str:
    return f'<text x="0" y="{y + 15:.0f}" fill="currentColor">{escaped(name)}</text>'


def _box(begin: float, end: float, y: float, look: str, title: str = "") -> str:
    said = f"<title>{escaped(title)}</title>" if title else ""
    width = share((1 - _LABEL) * max(0.0, end - begin))
    return f'<rect x="{_at(begin)}" y="{y:.0f}" width="{width}" height="{_BAR}" {look}>{said}</rect>'


def _whisker(low: float, high: float, y: float) -> str:
    middle = y + _BAR / 2
    strokes = [(low, high, middle, middle), (low, low, middle - 4, middle + 4), (high, high, middle - 4, middle + 4)]
    return "".join(
        f'<line x1="{_at(x1)}" x2="{_at(x2)}" y1="{y1:.0f}" y2="{y2:.0f}" stroke="currentColor" stroke-width="1.5"/>'
        for x1, x2, y1, y2 in strokes
    )


def _text(x: float, y: float, words: str, anchor: str, dx: int, colour: str = "currentColor") -> str:
    return (
        f'<text x="{_at(x)}" dx="{dx}" y="{y + 15:.0f}" text-anchor="{anchor}" fill="{colour}" font-weight="600">'
        f"{escaped(words)}</text>"
    )
