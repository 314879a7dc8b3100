"""Rows of manifests that select a piece of a file: NeMo's ``offset`` and ``duration``, or ``start`` and ``end``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .._base.errors import CorruptFileError
from ..loading.clip_ranges import named_range

_HINT = "write offset and duration, or start and end, in seconds, in every row of a piece"


def named_pieces(rows: Sequence[dict[str, Any]], files: Sequence[str], manifest: Path) -> list[str]:
    """``files`` with the piece that each row selects. Files are meant whole where no row starts behind their start.

    Raises ``CorruptFileError`` for the first row whose times cannot be used.
    """
    start = next((name for name in ("offset", "start") if any(_is_there(row.get(name)) for row in rows)), None)
    end = {"offset": "duration", "start": "end"}.get(start or "")
    if start is None or end is None or (start == "start" and not any(_is_there(row.get(end)) for row in rows)):
        return list(files)
    found = [_times(row, start, end, f"row {i} of {manifest}") for i, row in enumerate(rows, start=1)]
    if not any(times and times[0] > 0 for times in found):
        return list(files)
    return [named_range(file, *times) if times and file else file for file, times in zip(files, found, strict=True)]


def _times(row: dict[str, Any], start: str, end: str, where: str) -> tuple[float, float] | None:
    if not _is_there(row.get(start)) or (not _is_there(row.get(end)) and str(row[start]).strip() in ("0", "0.0")):
        return None
    try:
        first, second = float(row[start]), float(row[end])
    except (KeyError, TypeError, ValueError):
        raise CorruptFileError(
            f"{where} has {start} = {row.get(start)!r} and {end} = {row.get(end)!r}", _HINT
        ) from None
    last = first + second if end == "duration" else second
    if not 0 <= first < last or not math.isfinite(last):
        raise CorruptFileError(f"{where} selects {first:g} s to {last:g} s of its file", _HINT)
    return first, last


def _is_there(value: Any) -> bool:
    return value is not None and value != ""
