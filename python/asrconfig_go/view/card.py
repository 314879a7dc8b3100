"""Parts of the cards that a plan and a run are shown as; ``explain.style`` has their look."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .markup import escaped

SIGNS = {"serious": "✖", "warning": "⚠", "note": "ℹ"}


def section(title: str, body: str, note: str = "") -> str:
    """A titled part; ``body`` is HTML."""
    said = f" <span>· {escaped(note)}</span>" if note else ""
    return f'<div class="title" role="heading" aria-level="3">{escaped(title)}{said}</div>{body}'


def facts(lines: Sequence[str]) -> str:
    """Small lines of text."""
    return f'<div class="facts small">{"".join(f"<div>{escaped(line)}</div>" for line in lines)}</div>'


def grid(head: Sequence[str], rows: Iterable[str]) -> str:
    """A table of rows that are HTML, in a box that scrolls where it is narrow."""
    heads = "".join(f'<th scope="col">{escaped(cell)}</th>' for cell in head)
    return f'<div class="wide"><table><thead><tr>{heads}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'


def table(rows: Sequence[Sequence[str]]) -> str:
    """The first row is the head."""
    return grid(rows[0], (f"<tr>{''.join(f'<td>{escaped(cell)}</td>' for cell in row)}</tr>" for row in rows[1:]))


def notice(level: str, what: str, lines: Iterable[str]) -> str:
    """Something to look out for; ``level`` is one of ``SIGNS``."""
    return (
        f'<div class="caution {level}"><div><span class="level">{SIGNS[level]} {level}</span>'
        f"<b>{escaped(what)}</b></div>"
        + "".join(f'<div class="small">{escaped(line)}</div>' for line in lines)
        + "</div>"
    )
