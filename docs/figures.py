"""Measured figures that pages quote: benchmarks/bench.py writes them to benchmarks/figures.json, and pages mark them.

A mark is ``<!--=NAME-->96.9 %<!--/-->``, of its date ``<!--=NAME.date-->2026-11-24<!--/-->``, and never begins a line,
where Markdown would take the line for HTML. Beside the name of a benchmark that the file has, README and guides quote
no share and no ratio without a mark.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TypedDict

REPOSITORY = Path(__file__).resolve().parent.parent
PAGES = (REPOSITORY / "README.md", REPOSITORY / "benchmarks" / "README.md", *sorted((REPOSITORY / "docs").glob("*.md")))
FILE = REPOSITORY / "benchmarks" / "figures.json"
MARK = re.compile(r"<!--=(\w+)(\.date)?-->(.*?)<!--/-->", re.DOTALL)
CLAIM = re.compile(r"\d[\d.]*(?: ?%|×)")


class Figure(TypedDict):
    value: str
    unit: str
    """%, ×, s, …; empty for counts."""
    command: str
    """What measured it."""
    date: str


def read(file: Path = FILE) -> dict[str, Figure]:
    found: dict[str, Figure] = json.loads(file.read_text("utf-8"))
    return found


def write(figures: dict[str, Figure], file: Path = FILE) -> None:
    """A line for each figure."""
    lines = [f"  {json.dumps(name)}: {json.dumps(figure, ensure_ascii=False)}" for name, figure in figures.items()]
    file.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")


def shown(figure: Figure) -> str:
    return f"{figure['value']}{'' if figure['unit'] in ('', '×') else ' '}{figure['unit']}"


def filled(text: str, figures: dict[str, Figure]) -> str:
    """A page's text with every marked figure as the file has it. Raises ``KeyError`` for a name that it lacks."""

    def fill(mark: re.Match[str]) -> str:
        figure = figures[mark[1]]
        return f"<!--={mark[1]}{mark[2] or ''}-->{figure['date'] if mark[2] else shown(figure)}<!--/-->"

    return MARK.sub(fill, text)


def unmarked(text: str, figures: dict[str, Figure]) -> Iterator[str]:
    """Paragraphs and rows that quote a share or a ratio beside a benchmark of the file, without a mark."""
    benchmarks = {name for figure in figures.values() for name in re.findall(r"benchmarks/([\w.]+)", figure["command"])}
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    for part in re.split(r"\n(?=\||\n)", prose):
        if any(name in part for name in benchmarks) and CLAIM.search(MARK.sub("", part)):
            yield part.strip()
