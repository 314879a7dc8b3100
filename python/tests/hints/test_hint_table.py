"""The list of hints is whole: each has its row, each row its hint, and the tests that it names exist."""

from __future__ import annotations

import re
from functools import cache

from hint_sources import ROOT, all_hints
from hint_table import HOWS, PAGE, page, rows


@cache
def _source(path: str) -> str:
    return (ROOT / path).read_text()


def test_every_hint_has_a_row_and_every_row_its_hint() -> None:
    listed, there = {row.hint for row in rows()}, {hint.text for hint in all_hints()}
    assert there - listed == set(), "add a case to helpers/call_cases, or a line to others.tsv"
    assert listed - there == set(), "the hint is gone: remove its case or its line"


def test_rows_name_tests_that_exist() -> None:
    for row in rows():
        assert row.how in HOWS, row
        if row.how == "run":
            path, _, name = row.where.partition("::")
            assert re.search(rf"^\s*(?:def |class |func ){name.split('::')[-1]}\b", _source(path), re.MULTILINE), row
        else:
            assert row.where, row


def test_the_page_is_what_is_written() -> None:
    assert PAGE.read_text() == page(), "run python python/tests/helpers/hint_table.py"
