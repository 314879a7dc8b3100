"""The pictures of an explanation: durations with buckets and limits, and memory against its lines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..data.histogram import Band, Mark, histogram_svg
from ..view.markup import LIMIT_COLOUR, colour_of, escaped, round_step, share, svg
from ..view.units import GIB, gib, plural
from .plan_text import IN_USE, limit_words, memory_lines, part_rows

if TYPE_CHECKING:
    from ..data.profile import DatasetProfile
    from ..plan.plan_record import PlanRecord
    from .memory_bar import PlannedMemory

_TOP, _BAR, _TICKS = 7, 30, 18  # pixels
_NUMBERED = 0.022  # of the width, to hold a number
_INK = 'stroke="currentColor"'


def durations(d: DatasetProfile, c: PlanRecord) -> str:
    """The histogram with the median, the 95th percentile, length buckets and limits."""
    p = d.percentiles_s
    marks = [Mark(p["p50"], f"median {p['p50']:.3g} s"), Mark(p["p95"], f"95 % under {p['p95']:.3g} s")]
    marks += [Mark(s, words, limit=True, cuts=s == c.max_length_s) for s, words in limit_words(c)]
    described = (
        f"{plural(d.measured_count, 'clip')} from {d.min_s:.2f} to {d.max_s:.2f} s, half of them under "
        f"{p['p50']:.2f} s, 95 % under {p['p95']:.2f} s"
    )
    return histogram_svg(d.histogram, marks, list(_bands(c)), described)


def _bands(c: PlanRecord) -> Iterator[Band]:
    low = 0.0
    for bucket in c.length_buckets:
        fits = "" if bucket.micro_batch is None else f"{bucket.micro_batch}"
        title = f"{low:.4g}–{bucket.up_to_s:.4g} s: {plural(bucket.clips, 'clip')}, micro-batch {fits or 'unknown'}"
        yield Band(bucket.up_to_s, fits, title)
        low = bucket.up_to_s


def memory_bar(m: PlannedMemory) -> str:
    """Parts side by side, what was in use before them, a whisker to the worst order, budget and end of memory."""
    extent = 1.02 * m.extent_bytes
    middle, bottom = _TOP + _BAR / 2, _TOP + _BAR
    body = (
        _box(0, (m.total_bytes or 0) / extent, 'fill="currentColor" fill-opacity="0.07"', "") if m.total_bytes else ""
    )
    start = 0.0
    for segment in _segments(m):
        width = segment.bytes / extent
        body += _box(start, width, segment.look, f"{segment.name}: {_size(segment.bytes)}")
        if width >= _NUMBERED and segment.number:
            body += (
                f'<text x="{share(start + width / 2)}" y="{middle + 4:.0f}" text-anchor="middle" font-weight="600" '
                f'fill="{ink_on(segment.colour)}">{segment.number}</text>'
            )
        start += width
    for name, _, at in memory_lines(m):
        x = share(at / extent)
        if name == "worst order":
            body += _stroke(share(start), x, middle, middle) + _stroke(x, x, middle - 8, middle + 8)
        elif name == "budget":
            body += (
                f'<line class="asrconfig-limit" x1="{x}" x2="{x}" y1="0" y2="{bottom + 7}" stroke="{LIMIT_COLOUR}" '
                f'stroke-width="2" stroke-dasharray="5 3"/>'
            )
        else:
            body += _stroke(x, x, 0 if name == "total" else _TOP, bottom + (5 if name == "total" else 0))
    words = ", ".join(f"{name} {gib(held)}" for name, held, _ in memory_lines(m))
    parts = ", ".join(f"{segment.name} {_size(segment.bytes)}" for segment in _segments(m))
    label = f"memory of a device: {words}"
    return svg(body + _ticks(extent), label, height=_TOP + _BAR + _TICKS, described=f"It holds {parts}.")


@dataclass(frozen=True)
class _Segment:
    """What others hold has no number, and an outline instead of a colour."""

    number: str
    name: str
    bytes: int
    colour: str

    @property
    def look(self) -> str:
        if self.number:
            return f'class="asrconfig-part" fill="{self.colour}"'
        return 'fill="currentColor" fill-opacity="0.18" stroke="currentColor" stroke-dasharray="2 2"'

    @property
    def chip(self) -> str:
        if self.number:
            return f"background:{self.colour};color:{ink_on(self.colour)}"
        return "border:1px dashed"


def _segments(m: PlannedMemory) -> list[_Segment]:
    before = [_Segment("", IN_USE, m.others_bytes, "")] if m.others_bytes else []
    return before + [
        _Segment(f"{i}", name, held, colour_of(key)) for i, (key, name, held) in enumerate(part_rows(m), 1)
    ]


def _box(x: float, width: float, look: str, title: str) -> str:
    said = f"<title>{escaped(title)}</title>" if title else ""
    return f'<rect x="{share(x)}" y="{_TOP}" width="{share(width)}" height="{_BAR}" {look}>{said}</rect>'


def _stroke(x1: str, x2: str, y1: float, y2: float) -> str:
    return f'<line x1="{x1}" x2="{x2}" y1="{y1:.0f}" y2="{y2:.0f}" stroke="currentColor" stroke-width="2"/>'


def _ticks(extent: float) -> str:
    unit, name = (GIB, "GiB") if extent >= GIB else (2**20, "MiB")
    step, y = round_step(extent / unit), _TOP + _BAR + 16
    body = f'<text x="0" y="{y}" fill="currentColor">0 {name}</text>'
    for n in range(1, int(extent / unit / step) + 1):
        x = n * step * unit / extent
        if 0.1 < x < 0.985:
            body += f'<text x="{share(x)}" y="{y}" text-anchor="middle" fill="currentColor">{n * step:g}</text>'
    return body


def memory_keys(m: PlannedMemory) -> str:
    """What the segments and the lines of the bar stand for, with their sizes."""
    whole = max(m.peak_bytes, 1)
    chips = ""
    for segment in _segments(m):
        of_peak = f' <span class="dim">{segment.bytes / whole:.0%}</span>' if segment.number else ""
        chips += (
            f'<span><span class="chip" style="{segment.chip}">{segment.number}</span>{escaped(segment.name)} '
            f"<b>{_size(segment.bytes)}</b>{of_peak}</span>"
        )
    lines = "".join(f"<span>{_key(name)}{name} <b>{_size(held)}</b></span>" for name, held, _ in memory_lines(m))
    return f'<div class="keys">{chips}</div><div class="keys">{lines}</div>'


def _size(held: int) -> str:
    return f"{held / GIB:.2f} GiB" if held >= 0.095 * GIB else f"{held / 2**20:.0f} MiB"


# Strokes of the lines' keys, 16 × 12 pixels.
_KEYS = {
    "peak": "M1 1H13M1 11H13M14 0V12",
    "worst order": "M1 6H14M14 1V11",
    "budget": "M8 0V12",
    "total": "M8 0V12",
}


def _key(name: str) -> str:
    look = f'class="asrconfig-limit" stroke="{LIMIT_COLOUR}" stroke-dasharray="4 2"' if name == "budget" else ""
    return (
        '<svg width="16" height="12" aria-hidden="true" xmlns="http://www.w3.org/2000/svg">'
        f'<path d="{_KEYS[name]}" fill="none" stroke-width="2" {look or _INK}/></svg>'
    )


def ink_on(colour: str) -> str:
    """Black or white, whichever contrasts more with a colour ``#rrggbb`` (relative luminance of WCAG 2)."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "#000000" if (luminance + 0.05) / 0.05 >= 1.05 / (luminance + 0.05) else "#ffffff"
