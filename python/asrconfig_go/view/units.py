"""Figures and texts of messages; the library's ``core/view`` has those of all views. GiB are 2³⁰ bytes."""

from __future__ import annotations

from typing import Any

from .._base.output import show

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


def say(verbose: bool, stage: str, value: Any) -> None:
    """Print one stage: its name, then ``value``, in its short form if it has one, aligned."""
    if verbose:
        first, *others = (value.brief() if hasattr(value, "brief") else repr(value)).splitlines()
        show("\n".join([f"{stage + ':':<10} {first}", *(f"{'':<10} {line}" for line in others)]))
