"""Measured figures that pages quote: typed in benchmarks/figures.json alone, filled in where a page marks them.

A mark is ``<!--=NAME-->96.9 %<!--/-->``, and never begins a line, where Markdown would take the line for HTML. Beside
the name of a benchmark that the file has, README and guides quote no share and no ratio without a mark.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TypedDict

REPOSITORY = Path(__file__).resolve().parent.parent
PAGES = (REPOSITORY / "README.md", REPOSITORY / "benchmarks" / "README.md", *sorted((REPOSITORY / "docs").glob("*.md")))
MARK = re.compile(r"<!--=(\w+)-->(.*?)<!--/-->", re.DOTALL)
CLAIM = re.compile(r"\d[\d.]*(?: ?%|×)")


class Figure(TypedDict):
    value: str
    unit: str
    """%, ×, s, …; empty for counts."""
    command: str
    """What measured it."""
    date: str


def read() -> dict[str, Figure]:
    found: dict[str, Figure] = json.loads((REPOSITORY / "benchmarks" / "figures.json").read_text("utf-8"))
    return found


def shown(figure: Figure) -> str:
    return f"{figure['value']}{'' if figure['unit'] in ('', '×') else ' '}{figure['unit']}"


def filled(text: str, figures: dict[str, Figure]) -> str:
    """A page's text with every marked figure as the file has it. Raises ``KeyError`` for a name that it lacks."""
    return MARK.sub(lambda mark: f"<!--={mark[1]}-->{shown(figures[mark[1]])}<!--/-->", text)


def unmarked(text: str, figures: dict[str, Figure]) -> Iterator[str]:
    """Paragraphs and rows that quote a share or a ratio beside a benchmark of the file, without a mark."""
    benchmarks = {name for figure in figures.values() for name in re.findall(r"benchmarks/([\w.]+)", figure["command"])}
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    for part in re.split(r"\n(?=\||\n)", prose):
        if any(name in part for name in benchmarks) and CLAIM.search(MARK.sub("", part)):
            yield part.strip()
