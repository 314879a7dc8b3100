"""The pages that people read, and their parts: code blocks, links and headings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import nbformat

import asrconfig_go
from locations import REPOSITORY

GUIDES = sorted((REPOSITORY / "docs").glob("*.md")) + sorted((REPOSITORY / "docs" / "reference").glob("*.md"))
GENERATED = REPOSITORY / "docs" / "reference" / "operations.md"  # by the build of the site, and not kept in git
GUIDES = [page for page in GUIDES if page != GENERATED]
OTHERS = [REPOSITORY / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
OTHERS += sorted((REPOSITORY / "benchmarks").rglob("*.md"))

PACKAGE = Path(asrconfig_go.__file__).parent
PUBLIC_PACKAGES = {file.parent.name for file in PACKAGE.glob("*/__init__.py") if "__all__ =" in file.read_text("utf-8")}

_FENCE = re.compile(r"^(?P<fence>`{3,})(?P<language>.*)$")
_MARK = re.compile(r"^<!-- (?P<word>not run|checked)(?:: (?P<text>.*))? -->$")


@dataclass(frozen=True)
class Block:
    """A fenced block: what stands behind the fence, its lines, the line of the first one, and the comment above it."""

    language: str
    text: str
    line: int
    mark: str
    """``not run`` or ``checked``, empty without such a comment."""
    reason: str


def name_of(page: Path) -> str:
    """The page's path in the repository."""
    return page.relative_to(REPOSITORY).as_posix()


def blocks(page: Path) -> Iterator[Block]:
    """All fenced blocks of a page, in order."""
    lines = page.read_text("utf-8").splitlines()
    open_at, opened, mark = 0, None, None
    for number, line in enumerate(lines, start=1):
        fence = _FENCE.match(line)
        if opened is None:
            if fence:
                open_at, opened = number, fence
            elif line.strip():
                mark = _MARK.match(line)
        elif line.strip() == opened["fence"]:
            text = "".join(f"{line}\n" for line in lines[open_at : number - 1])
            word, reason = (mark["word"], mark["text"] or "") if mark else ("", "")
            yield Block(opened["language"].strip(), text, open_at + 1, word, reason)
            opened = mark = None
    assert opened is None, f"{name_of(page)}: the block of line {open_at} never ends"


def _outside_blocks(page: Path) -> Iterator[str]:
    """The lines of a page that are in no fenced block."""
    inside = ""
    for line in page.read_text("utf-8").splitlines():
        fence = _FENCE.match(line)
        if fence and not inside:
            inside = fence["fence"]
        elif inside:
            inside = "" if line.strip() == inside else inside
        else:
            yield line


def prose(page: Path) -> str:
    """A page's text without its blocks and without code in lines."""
    return re.sub(r"(`+).*?\1", "`code`", "\n".join(_outside_blocks(page)), flags=re.DOTALL)


def spans(page: Path) -> list[str]:
    """The code in a page's lines, whether it is in a sentence or in a table."""
    found = re.findall(r"(?<!`)`([^`]+)`(?!`)", "\n".join(_outside_blocks(page)))
    return [" ".join(span.split()) for span in found]


def anchors(page: Path) -> set[str]:
    """What GitHub and the site call the headings of a page: small letters, dashes, no punctuation."""
    found: set[str] = set()
    for line in _outside_blocks(page):
        if heading := re.match(r"^#{1,6} (.+?)\s*$", line):
            slug = re.sub(r"[^\w\- ]", "", heading[1].lower().replace("`", "")).replace(" ", "-")
            number = 0
            while (name := f"{slug}-{number}" if number else slug) in found:
                number += 1
            found.add(name)
    return found


HOME = "https://github.com/asrconfig/asrconfig-go"
NOTEBOOKS = sorted((REPOSITORY / "notebooks").glob("*.ipynb"))


def first_cells() -> dict[str, list[str]]:
    """The cells that install, by page or notebook."""
    pages = [*OTHERS, *GUIDES, REPOSITORY / "notebooks" / "README.md"]
    found = {name_of(page): [b.text.strip() for b in blocks(page) if "find_spec" in b.text] for page in pages}
    return {name: cells for name, cells in found.items() if cells} | {
        name_of(path): [_first(path)] for path in NOTEBOOKS
    }


def _first(notebook: Path) -> str:
    cells = nbformat.read(notebook, as_version=4).cells
    return next(str(cell.source) for cell in cells if cell.cell_type == "code")


def cell() -> str:
    """That of the README."""
    return first_cells()["README.md"][0]


def wheel() -> tuple[str, str]:
    """The release's tag and the wheel's name in it."""
    found = re.search(r'"\{home\}/releases/download/([^/]+)/([^/]+\.whl)"', cell())
    assert found is not None
    return found[1], found[2]
