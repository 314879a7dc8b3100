"""Figures and texts that all views share. Sizes in GB are 10⁹ bytes, in GiB 2³⁰."""

from __future__ import annotations

from typing import Any

from .._base.output import show
from .markup import escaped

GIB = 2**30


def gib(size: float | None) -> str:
    """``15.0 GiB``; a dash for an unknown size."""
    return "–" if size is None else f"{size / GIB:.1f} GiB"


def gb(size: float | None) -> str:
    """``16.11 GB``, amounts under 10 MB as MB, as the planner writes them; a dash for an unknown size."""
    if size is None:
        return "–"
    return f"{size / 1e6:.1f} MB" if size < 1e7 else f"{size / 1e9:.2f} GB"


def plural(count: int, noun: str, many: str = "") -> str:
    """``1 clip``, ``2 clips``; ``many`` where an s is not enough."""
    return f"{count} {noun if count == 1 else many or noun + 's'}"


def as_html(title: str, text: str) -> str:
    """Text in a titled box, line by line as it is; long lines scroll."""
    style = "margin:0.3em 0;font-family:monospace;white-space:pre;overflow-x:auto"
    lines = "\n".join(map(escaped, text.splitlines()))
    return f'<div><b>{escaped(title)}</b><pre style="{style}">{lines}</pre></div>'


def say(verbose: bool, stage: str, what: Any) -> None:
    """Print one stage: its name, then what was found, aligned."""
    if verbose:
        first, *rest = repr(what).splitlines()
        show("\n".join([f"{stage + ':':<10} {first}", *(f"{'':<10} {line}" for line in rest)]))
