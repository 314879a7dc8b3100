"""Renders records by the library: text, HTML, CSV, or charts to draw."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .._base import native
from .._base.errors import InvalidArgumentError, LibraryError
from .._base.files import save_whole

Record = dict[str, Any]

WIDTH, NARROWEST, WIDEST = 110, 20, 1000
"""Columns of text, where a caller names none; the fewest and the most."""


def render(kind: str, form: str, record: Record, width: int = 0) -> Any:
    """``record`` as ``"text"``, ``"html"``, ``"page"``, ``"title"``, ``"csv"`` or ``"charts"``."""
    return native.call("view.render", {"kind": kind, "format": form, "width": width, "record": record})


def text(kind: str, record: Record, width: int = 0) -> str:
    """For terminals, at most ``width`` columns wide (0: 110). Where the library cannot be used, a line that says so."""
    return _shown(kind, "text", record, width)


def html(kind: str, record: Record) -> str:
    """A card for notebooks: no script, no external resources, light and dark."""
    return _shown(kind, "html", record)


def title(kind: str, record: Record) -> str:
    """The record in one sentence."""
    return _shown(kind, "title", record)


def _shown(kind: str, form: str, record: Record, width: int = 0) -> str:
    """Showing a record must not end what shows it: a child that was forked cannot use the library."""
    try:
        return str(render(kind, form, record, width)["text"])
    except LibraryError as error:
        return f"({kind}: {error.message})"


def save_page(path: Path, kind: str, record: Record) -> None:
    """Write a self-contained page, whole or not at all.

    Raises ``InvalidArgumentError`` for another suffix than .html, ``NotFoundError`` where it cannot be written.
    """
    if path.suffix.lower() not in (".html", ".htm"):
        raise InvalidArgumentError(f"{path.name!r} does not end with .html", "name a file .html")
    save_text(path, render(kind, "page", record)["text"])


def save_text(path: Path, content: str) -> None:
    """Write a text atomically."""
    save_whole(path, content.encode("utf-8", "backslashreplace"))


def box(name: str, content: str) -> str:
    """Text in a titled card, line by line as it is."""
    return html("box", {"title": name, "lines": content.splitlines()})
