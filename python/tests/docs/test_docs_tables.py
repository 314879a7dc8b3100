"""The tables of docs/ say what the planner says."""

from __future__ import annotations

import importlib.util
from types import ModuleType

import pytest

from locations import REPOSITORY

DOCS = REPOSITORY / "docs"


@pytest.fixture(scope="module")
def tables() -> ModuleType:
    """The script that writes them."""
    spec = importlib.util.spec_from_file_location("make_tables", DOCS / "make_tables.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_pages_are_up_to_date(tables: ModuleType) -> None:
    for name in tables.PAGES:
        page = (DOCS / name).read_text("utf-8")
        assert tables.filled(page) == page, f"run python docs/make_tables.py, and read the difference in {name}"


def test_tables_that_changed_are_seen(tables: ModuleType) -> None:
    page = (DOCS / "costs.md").read_text("utf-8")
    assert tables.filled(page.replace("| RTX 4090 | 8 × 4, bf16 |", "| RTX 4090 | 9 × 4, bf16 |")) == page
    assert "9 × 4" not in page and "8 × 4, bf16" in page
