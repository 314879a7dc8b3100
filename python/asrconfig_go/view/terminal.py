"""Text for terminals: wrapped lines, titled sections, tables, at most ``WIDTH`` columns wide."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterable, Sequence

from .markup import visible

WIDTH = 110
_GAP, _NARROWEST = "  ", 20  # between columns; of a column that is wrapped


def section(title: str, body: Iterable[str], indent: str = "  ") -> list[str]:
    """A title after an empty line and what is under it; nothing where nothing is."""
    held = [line for text in body for line in wrapped(text, indent)]
    return ["", title, *held] if held else []


def wrapped(text: str, indent: str = "", hanging: str = "") -> list[str]:
    """Lines no wider than ``WIDTH``; a line that fits keeps its spaces."""
    text = visible(text)
    if len(indent + text) <= WIDTH:
        return [indent + text]
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent + hanging, break_on_hyphens=False)


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """The first row is the head; columns as wide as their widest cell, the widest wrapped where there is no room."""
    if len(rows) < 2:
        return []
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    over = sum(widths) + len(_GAP) * (len(widths) - 1) - (WIDTH - 2)
    widest = widths.index(max(widths))
    if over > 0:
        widths[widest] = max(_NARROWEST, widths[widest] - over)
    return [line for row in rows for line in _row(row, widths)]


def _row(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    cells = [textwrap.wrap(visible(cell), width) for cell, width in zip(row, widths, strict=True)]
    lines = itertools.zip_longest(*cells, fillvalue="")
    return [_GAP.join(part.ljust(width) for part, width in zip(line, widths, strict=True)).rstrip() for line in lines]
