"""The first cell of README, guides and notebooks, which installs the package."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat

from doc_pages import GUIDES, OTHERS, blocks, name_of
from locations import REPOSITORY

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
