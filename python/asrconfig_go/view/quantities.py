"""Figures of a run in words."""

from __future__ import annotations

import time

from .units import GIB


def lasting(seconds: float) -> str:
    """``850 ms``, ``42 s``, ``12.5 min``, ``3 h 20 min``, ``2 d 4 h``."""
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 99.5:
        return f"{seconds:.3g} s"
    if seconds < 5970:
        return f"{seconds / 60:.3g} min"
    minutes = round(seconds / 60)
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60} min"
    hours = round(seconds / 3600)
    return f"{hours // 24} d {hours % 24} h"


def clock(unix_s: float) -> str:
    """``2026-11-22 14:20:05``, by this machine's clock."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(unix_s))


def into_run(seconds: float) -> str:
    """``0:07:31``, ``2 d 03:10:00``: seconds from the run's start."""
    whole = round(seconds)
    days, rest = divmod(whole, 86400)
    hours, minutes, left = rest // 3600, rest // 60 % 60, rest % 60
    return f"{days} d {hours:02}:{minutes:02}:{left:02}" if days else f"{hours}:{minutes:02}:{left:02}"


def size(held: float | None) -> str:
    """``20.1 GiB``, ``640 MiB``, ``0``; a dash for what is not known."""
    if held is None:
        return "–"
    if abs(held) < 2**19:
        return "0"
    return f"{held / GIB:.1f} GiB" if abs(held) >= 0.95 * GIB else f"{held / 2**20:.0f} MiB"


def percent(part: float | None) -> str:
    """``87 %``; a dash for what is not known."""
    return "–" if part is None else f"{100 * part:.0f} %" if part >= 0.1 or part == 0 else f"{100 * part:.1f} %"


def amount(value: float | None, unit: str) -> str:
    """``61 W``; a dash for what is not known."""
    return "–" if value is None else f"{short(value)} {unit}"


def short(value: float) -> str:
    """Three digits that count, or all of a larger number."""
    return f"{value:.0f}" if abs(value) >= 99.5 else f"{value:.3g}"


def rate(bytes_s: float | None) -> str:
    """``60 MB/s``, ``0``; a dash for what is not known."""
    if bytes_s is None:
        return "–"
    if bytes_s < 500:
        return "0"
    return f"{bytes_s / 1e6:.0f} MB/s" if bytes_s >= 9.5e5 else f"{bytes_s / 1e3:.0f} kB/s"
