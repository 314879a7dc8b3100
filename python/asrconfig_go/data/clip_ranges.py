"""Pieces of recordings by their times, named ``talk.flac#t=12.5,30`` or cut from arrays."""

from __future__ import annotations

import math
import os
import re
from typing import Any

from .._core.defaults import SAMPLING_RATE
from ..errors import InvalidArgumentError

_RANGE = re.compile(r"(.*)#t=(\d+(?:\.\d+)?),(\d+(?:\.\d+)?)", re.DOTALL)


def is_array(value: object) -> bool:
    """A NumPy array, a torch tensor, or anything of their shape."""
    return hasattr(value, "shape") and hasattr(value, "dtype")


def kind(value: object) -> str:
    """A value's type in words."""
    return "None" if value is None else f"a {type(value).__name__}"


def split_range(path: str, *, file: bool = True) -> tuple[str, tuple[float, float] | None]:
    """Split ``path`` into a recording and the seconds to read of it, None for all of it.

    ``file``: the path of a file on disk, whose own name may look like a range.
    """
    match = _RANGE.fullmatch(path) if "#t=" in path else None
    if match is None or (file and os.path.exists(path)):  # noqa: PTH110 (this runs for every clip)
        return path, None
    return match[1], (float(match[2]), float(match[3]))


def named_range(path: str, start: float, end: float, *, file: bool = True) -> str:
    """The name of ``start`` to ``end`` in seconds, to the microsecond, of a recording or of a piece of one."""
    if not 0 <= start < end or not math.isfinite(end):
        raise InvalidArgumentError(f"{path} has no piece from {start} s to {end} s", "give seconds, the start first")
    recording, within = split_range(path, file=file)
    first = within[0] if within else 0.0
    return f"{recording}#t={_seconds(first + start)},{_seconds(first + end)}"


def part_of(audio: object, start: float, end: float) -> Any:
    """Select ``start`` to ``end`` in seconds of ``audio``, which is decoded by ``load_audio`` only later."""
    if isinstance(audio, str | os.PathLike):
        return named_range(os.fsdecode(audio), start, end)
    if isinstance(audio, bytes | bytearray | memoryview):
        return {"bytes": audio, "path": named_range("", start, end, file=False)}
    if isinstance(audio, dict) and audio.get("array") is not None:
        rate = audio.get("sampling_rate", SAMPLING_RATE)
        return {**audio, "array": _samples(audio["array"], start, end, rate)}
    if isinstance(audio, dict):
        in_memory = audio.get("bytes") is not None
        return {**audio, "path": named_range(os.fsdecode(audio.get("path") or ""), start, end, file=not in_memory)}
    return _samples(audio, start, end, SAMPLING_RATE)


def _samples(array: Any, start: float, end: float, rate: float) -> Any:
    if is_array(array) and len(array.shape) == 2 and array.shape[0] < array.shape[1]:
        return array[:, round(start * rate) : round(end * rate)]
    return array[round(start * rate) : round(end * rate)]


def _seconds(value: float) -> str:
    return f"{value:.6f}".rstrip("0").rstrip(".")
