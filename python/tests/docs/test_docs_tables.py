"""The generated tables say what the planner says, and every quoted figure is that of benchmarks/figures.json."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

from doc_pages import name_of
from locations import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "docs"))

import figures

FIGURES = figures.read()
QUOTING = [page for page in figures.PAGES if page.parent.name != "benchmarks"]


@pytest.fixture(scope="module")
def tables() -> ModuleType:
    """The script that writes them."""
    return importlib.import_module("make_tables")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["TABLES_PAGE", "BY_HAND_PAGE"])
def test_tables_are_up_to_date(tables: ModuleType, name: str) -> None:
    page = getattr(tables, name).read_text("utf-8")
    assert tables.filled(page) == page, "run python docs/make_tables.py, and read the difference"


def test_the_replaced_methods_are_up_to_date(tables: ModuleType) -> None:
    page = tables.GUARD_PAGE.read_text("utf-8")
    assert tables.filled(page) == page, "run python docs/make_tables.py, and read the difference"


def test_tables_that_changed_are_seen(tables: ModuleType) -> None:
    page = tables.TABLES_PAGE.read_text("utf-8")
    begin = page.index("<!-- table: cards -->")  # whose making plans nothing
    part = page[begin : page.index(tables.END, begin) + len(tables.END)]
    changed = part.replace("| T4 | ", "| T4 | 1")
    assert changed != part
    assert tables.filled(changed) == part


@pytest.mark.parametrize("page", figures.PAGES, ids=name_of)
def test_figures_are_those_of_the_file(page: Path) -> None:
    text = page.read_text("utf-8")
    assert figures.filled(text, FIGURES) == text, "run python docs/make_tables.py, and read the difference"
    assert text.count("<!--=") == len(figures.MARK.findall(text))
    assert not any(line.lstrip().startswith("<!--=") for line in text.splitlines()), (
        "Markdown takes such a line for HTML"
    )


@pytest.mark.parametrize("page", QUOTING, ids=name_of)
def test_no_figure_stands_unmarked_beside_its_benchmark(page: Path) -> None:
    assert list(figures.unmarked(page.read_text("utf-8"), FIGURES)) == []


def test_every_figure_is_quoted_and_has_an_origin() -> None:
    quoted = {name for page in figures.PAGES for name, *_ in figures.MARK.findall(page.read_text("utf-8"))}
    assert quoted == FIGURES.keys()
    for name, figure in FIGURES.items():
        assert figure["value"] and figure["command"] and figure["date"].startswith("20"), name


def test_a_figure_that_differs_is_seen() -> None:
    known = {
        "seen": figures.Figure(value="96.9", unit="%", command="go run ./benchmarks/forecast_truth", date="2026-11")
    }
    marked = "seen <!--=seen-->95.4 %<!--/--> (`forecast_truth`)"
    assert figures.filled(marked, known) == "seen <!--=seen-->96.9 %<!--/--> (`forecast_truth`)"
    assert list(figures.unmarked(marked, known)) == []
    page = "one 3 %\n\n`forecast_truth`: 95.4 %\n\n| `forecast_truth` | 2.5× |\n| other | 2× |\n"
    assert list(figures.unmarked(page, known)) == ["`forecast_truth`: 95.4 %", "| `forecast_truth` | 2.5× |"]
    with pytest.raises(KeyError):
        figures.filled("<!--=other-->1<!--/-->", known)
