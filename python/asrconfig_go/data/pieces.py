"""Pieces of a dataset that Python reads instead of the scanner, and pieces of recordings by their times."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from .._core.defaults import SAMPLING_RATE
from .._core.input_units import InputUnit
from ..errors import InvalidArgumentError


@dataclass
class Piece:
    """Some rows of a source: measured clips, encoded buffers, and paths, each with their row numbers.

    Or all of them in ``arrow``, a column of a table (see ``columns``), or in a ``page`` with its ``columns``, of
    another scan (see ``scan_jobs``).
    """

    clips: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    buffers: list[dict[str, Any]] = field(default_factory=list)
    buffer_rows: list[int] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    path_rows: list[int] = field(default_factory=list)
    arrow: dict[str, Any] | None = None
    page: dict[str, Any] | None = None
    columns: bytes = b""
    alive: list[Any] = field(default_factory=list)  # keeps the buffers' memory


@dataclass
class Source:
    """A request for one scan, or ``pieces`` with a ``label``.

    ``population`` is the number of rows that the pieces come from, None for a stream of unknown length; ``sampled``
    says that the pieces may be fewer. ``shards``, filled while pieces are read, counts the rows that were read of each
    shard of a stream, one behind the other. ``texts`` returns the transcripts of all rows, by the name of the column or
    None for the usual ones; it is None where the library reads it, from manifests and shards, or where there is none.
    """

    request: dict[str, Any] | None = None
    pieces: Callable[[], Iterator[Piece]] = lambda: iter(())
    label: str = ""
    total: int | None = None
    population: int | None = None
    sampled: bool = False
    shards: list[int] = field(default_factory=list)
    alive: list[Any] = field(default_factory=list)  # keeps the memory that the request points to
    texts: Callable[[str | None], list[Any]] | None = None
    unit: InputUnit | None = None  # of rows that hold a model's input


def array_clip(item: Any, row: int, sampling_rate: int) -> dict[str, Any]:
    """The clip of a decoded array: its length over its rate. Samples are not looked at."""
    rate = sampling_rate
    if isinstance(item, dict):
        item, rate = item.get("array"), item.get("sampling_rate", sampling_rate)
    problem = _array_problem(item, rate)
    if problem:
        return known_clip(f"[{row}]", None, 0, 0, problem)
    return known_clip(f"[{row}]", len(item) / rate, rate, 4 * len(item), "")


def _array_problem(array: Any, rate: Any) -> str:
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate <= 10_000_000:
        return f"sampling rate {rate!r} is not a positive number of hertz"
    if not is_array(array) and not (isinstance(array, list | tuple) and all(isinstance(x, int | float) for x in array)):
        return f"is {kind(array)}, not a 1-D array"
    if is_array(array) and len(array.shape) != 1:
        return f"has the shape {tuple(array.shape)}, not one dimension"
    return "" if len(array) else "holds no audio"


def known_clip(path: str, duration: float | None, rate: float, size: int, error: str) -> dict[str, Any]:
    """A clip measured here rather than by the library."""
    codec, method = ("", "") if error else ("array", "given")
    return {
        "path": path, "duration_s": duration, "claimed_duration_s": None, "sample_rate": int(rate),
        "channels": int(not error), "bits": 0, "codec": codec, "method": method, "size_bytes": size, "error": error,
    }  # fmt: skip


def encoded_piece(rows: Iterable[tuple[int, str | None, Any]]) -> Piece:
    """A piece of (row, path, buffer) triples; a buffer has ``address`` and ``size`` and may be None."""
    piece = Piece()
    for row, path, buffer in rows:
        if buffer is not None:
            piece.buffers.append({"name": path or f"[{row}]", "address": buffer.address, "size": buffer.size})
            piece.buffer_rows.append(row)
            piece.alive.append(buffer)
        elif path:
            piece.paths.append(path)
            piece.path_rows.append(row)
        else:
            piece.clips.append((row, known_clip(f"[{row}]", None, 0, 0, "has neither a path nor bytes")))
    return piece


def is_array(value: Any) -> bool:
    """A NumPy array, a torch tensor, or anything of their shape."""
    return hasattr(value, "shape") and hasattr(value, "dtype")


def kind(value: Any) -> str:
    """A value's type in words."""
    return "None" if value is None else f"a {type(value).__name__}"


_RANGE = re.compile(r"(.*)#t=(\d+(?:\.\d+)?),(\d+(?:\.\d+)?)", re.DOTALL)


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


def part_of(audio: Any, start: float, end: float) -> Any:
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
