"""Whether a page is sound."""

from __future__ import annotations

import html.parser
import re
from typing import Any
from xml.etree import ElementTree


class _Tags(html.parser.HTMLParser):
    """Fails on tags that are not closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.classes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in ("br", "meta"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.seen.append(tag)
        self.classes |= set((dict(attrs).get("class") or "").split())

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def tags(page: str) -> _Tags:
    found = _Tags()
    found.feed(page)
    assert found.open == []
    return found


def pictures(page: str) -> list[ElementTree.Element]:
    """Those with a label, as XML: parsing shows that they are well-formed."""
    depth, start, found = 0, 0, []
    for match in re.finditer(r"<svg|</svg>", page):
        if match[0] == "<svg":
            start = match.start() if depth == 0 else start
            depth += 1
        else:
            depth -= 1
            if depth == 0:
                found.append(ElementTree.fromstring(page[start : match.end()]))
    return [svg for svg in found if svg.get("role") == "img"]


def charts(page: str) -> list[ElementTree.Element]:
    """Pictures with lines in a picture of their own."""
    return [svg for svg in pictures(page) if any(child.tag.endswith("svg") for child in svg)]
