"""Lists in messages: never longer than a few entries, however many clips, files or ranks there are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

SHOWN = 8
"""Entries of a list in a message."""
LINES = 20
"""Lines of a list in a report."""
LONGEST = 400
"""Characters of a text that somebody else wrote."""


def listed(items: Iterable[Any], separator: str = ", ", shown: int = SHOWN) -> str:
    """The first ``items`` as text, and how many more there are.

    >>> listed(range(30), shown=3)
    '0, 1, 2, … and 27 more'
    """
    return separator.join(first_of(items, shown))


def first_of(items: Iterable[Any], shown: int = LINES) -> list[str]:
    """The same as lines."""
    texts = list(items)
    more = [f"… and {len(texts) - shown} more"] if len(texts) > shown else []
    return [*map(str, texts[:shown]), *more]


def shortened(text: str, longest: int = LONGEST) -> str:
    """``text`` of at most so many characters."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
