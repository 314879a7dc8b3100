"""Links between the pages of the repository lead somewhere, headings included; no page of the site is out of reach."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from doc_pages import GENERATED, GUIDES, OTHERS, anchors, blocks, name_of, prose
from locations import REPOSITORY

_LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^)\s]+)\)")


@pytest.mark.parametrize("page", GUIDES + OTHERS, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for target in _LINK.findall(prose(page)):
        if re.match(r"https?:|mailto:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{target}: there is no {path}"
        assert file.is_relative_to(REPOSITORY), f"{target} leaves the repository"
        if anchor:
            assert anchor in anchors(file), f"{target}: {file.name} has no such heading"


def test_a_missing_anchor_is_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One `two`: three\n## One two three\n```\n# no heading\n```\n[a](#b) `[c](d)`\n", "utf-8")
    assert anchors(page) == {"one-two-three", "one-two-three-1"}
    assert _LINK.findall(prose(page)) == ["#b"]


def test_every_page_is_in_the_table_of_contents() -> None:
    listed = [
        entry.split("<")[-1].rstrip(">")
        for page in GUIDES
        for block in blocks(page)
        if block.language.startswith("{toctree}")
        for entry in block.text.splitlines()
        if entry and not entry.startswith(":")
    ]
    own = [f"docs/{entry}.md" for entry in listed if not entry.startswith("_repository/")]
    assert sorted(own) == sorted(name_of(page) for page in [*GUIDES, GENERATED] if page.name != "index.md")
