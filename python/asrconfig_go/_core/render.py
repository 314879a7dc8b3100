"""Renders records by the library: text, HTML, CSV, or charts to draw; figures with units."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from .._core import native
from ..errors import InvalidArgumentError, LibraryError
from .files import save_whole
from .output import show
from .records import to_json

Record = dict[str, Any]

WIDTH, NARROWEST, WIDEST = 110, 20, 1000
"""Columns of text, where a caller names none; the fewest and the most."""


def render(kind: str, form: str, record: Record, width: int = 0) -> Any:
    """``record`` as ``"text"``, ``"brief"``, ``"html"``, ``"page"``, ``"title"``, ``"csv"`` or ``"charts"``."""
    return native.call("view.render", {"kind": kind, "format": form, "width": width, "record": record})


def text(kind: str, record: Record, width: int = 0) -> str:
    """For terminals, at most ``width`` columns wide (0: 110). Where the library cannot be used, a line that says so."""
    return _shown(kind, "text", record, width)


def brief(kind: str, record: Record) -> str:
    """The same in at most 14 lines: what to do, what it gives, what matters most."""
    return _shown(kind, "brief", record)


def html(kind: str, record: Record) -> str:
    """A card for notebooks: no script, no external resources, light and dark."""
    return _shown(kind, "html", record)


def title(kind: str, record: Record) -> str:
    """The record in one sentence."""
    return _shown(kind, "title", record)


def _shown(kind: str, form: str, record: Record, width: int = 0) -> str:
    """Showing a record never raises in a forked child, which cannot use the library."""
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


class Shown:
    """A record that people look at, by the view of a ``kind``: ``print`` shows text, a notebook a card."""

    _kind = ""

    def __init_subclass__(cls, kind: str = "", **more: object) -> None:
        super().__init_subclass__(**more)
        if kind:
            cls._kind = kind

    def _shown(self) -> Record:
        """What the view shows."""
        return dict(to_json(self))

    def brief(self) -> str:
        """At most 14 lines: what to do, what it gives, and what matters most."""
        return brief(self._kind, self._shown())

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write a self-contained page.

        Raises ``InvalidArgumentError`` for another suffix than .html, ``NotFoundError`` where it cannot be written.
        """
        save_page(Path(path), self._kind, self._shown())

    def __repr__(self) -> str:
        return text(self._kind, self._shown())

    def _repr_html_(self) -> str:
        return html(self._kind, self._shown())


GIB = 2**30


def gib(size: float | None) -> str:
    """``15.0 GiB``; a dash for an unknown size."""
    return "–" if size is None else f"{size / GIB:.1f} GiB"


def exact(size: float | None) -> str:
    """``12.41 GiB``, small amounts as MiB, KiB or B; a dash for an unknown size."""
    if size is None:
        return "–"
    if abs(size) >= 0.095 * GIB:
        return f"{size / GIB:.2f} GiB"
    if abs(size) >= 0.095 * 2**20:
        return f"{size / 2**20:.1f} MiB"
    return f"{size / 2**10:.1f} KiB" if abs(size) >= 0.095 * 2**10 else f"{size:.0f} B"


def parameter_count(count: int) -> str:
    """``315.5 M``, ``8.2 k``, ``12``."""
    if count >= 1e5:
        return f"{count / 1e6:.1f} M"
    return f"{count / 1e3:.1f} k" if count >= 1000 else f"{count}"


def plural(count: int, noun: str, many: str = "") -> str:
    """``1 clip``, ``2 clips``; ``many`` where an s is not enough."""
    return f"{count} {noun if count == 1 else many or noun + 's'}"


def percent(share: float | None) -> str:
    """``87 %``; a dash for what is not known."""
    if share is None:
        return "–"
    return f"{100 * share:.0f} %" if share >= 0.1 or share == 0 else f"{100 * share:.1f} %"


def visible(text: str) -> str:
    """``text`` with unsafe characters escaped: control characters, marks that turn text around."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def say(verbose: bool, stage: str, value: object) -> None:
    """Print one stage: its name, then ``value``, in its short form if it has one, aligned."""
    if verbose:
        first, *others = (value.brief() if hasattr(value, "brief") else repr(value)).splitlines()
        show("\n".join([f"{stage + ':':<10} {first}", *(f"{'':<10} {line}" for line in others)]))
