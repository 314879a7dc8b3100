"""What a scan gets: one request, or rows that Python reads, piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .._core.batches import InputUnit
from .._core.defaults import SAMPLING_RATE
from .clip_ranges import is_array, kind

if TYPE_CHECKING:
    import pyarrow as pa

Text = str | list[int] | None
"""A transcript, or labels."""
_HIGHEST_RATE = 10_000_000  # hertz


@dataclass(frozen=True)
class Piece:
    """Some rows as ``scan.add`` takes them, and ``alive``, which keeps the memory that they point to."""

    request: dict[str, object]
    columns: bytes = b""
    alive: object = None


@dataclass
class ScanInput:
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
    alive: object = None  # keeps the memory that the request points to
    texts: Callable[[str | None], list[Text]] | None = None
    unit: InputUnit | None = None  # of rows that hold a model's input


def clips_piece(clips: Iterable[tuple[int, dict[str, object]]]) -> Piece:
    """A piece of measured clips, each with the number of its row."""
    pairs = list(clips)
    return Piece({"clips": [clip for _, clip in pairs], "clip_rows": [row for row, _ in pairs]})


def stored_piece(rows: Iterable[tuple[int, object]]) -> Piece:
    """A piece of audio as streams store it: paths, encoded bytes, dictionaries of both, or arrays."""
    import pyarrow as pa

    clips: list[tuple[int, dict[str, object]]] = []
    buffers: list[tuple[int, str, pa.Buffer]] = []
    paths: list[tuple[int, str]] = []
    for row, value in rows:
        value = {"path": value} if isinstance(value, str) else {"bytes": value} if isinstance(value, bytes) else value
        if not (value is None or (isinstance(value, dict) and "array" not in value)):
            clips.append((row, array_clip(value, row, SAMPLING_RATE)))
            continue
        value = with_bytes(value or {})
        if value.get("bytes") is not None:
            buffers.append((row, value.get("path") or f"[{row}]", pa.py_buffer(value["bytes"])))
        elif value.get("path"):
            paths.append((row, value["path"]))
        else:
            clips.append((row, known_clip(f"[{row}]", None, 0, 0, "has neither a path nor bytes")))
    request = {
        **clips_piece(clips).request,
        "buffers": [{"name": name, "address": buffer.address, "size": buffer.size} for _, name, buffer in buffers],
        "buffer_rows": [row for row, *_ in buffers],
        "paths": [path for _, path in paths],
        "path_rows": [row for row, _ in paths],
    }
    return Piece(request, alive=buffers)


def with_bytes(value: Any) -> Any:
    """A stored clip with its bytes, where only a remote file's address is stored."""
    path = value.get("path") if isinstance(value, dict) else None
    if path is None or value.get("bytes") is not None or "array" in value or "://" not in path:
        return value
    import fsspec

    with fsspec.open(path, "rb") as file:
        return {**value, "bytes": file.read()}


def array_clip(item: Any, row: int, sampling_rate: int) -> dict[str, object]:
    """The clip of a decoded array: its length over its rate. Samples are not looked at."""
    rate = sampling_rate
    if isinstance(item, dict):
        item, rate = item.get("array"), item.get("sampling_rate", sampling_rate)
    problem = _array_problem(item, rate)
    if problem:
        return known_clip(f"[{row}]", None, 0, 0, problem)
    return known_clip(f"[{row}]", len(item) / rate, rate, 4 * len(item), "")


def _array_problem(array: Any, rate: object) -> str:
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate <= _HIGHEST_RATE:
        return f"sampling rate {rate!r} is not a positive number of hertz"
    if not is_array(array) and not (isinstance(array, list | tuple) and all(isinstance(x, int | float) for x in array)):
        return f"is {kind(array)}, not a 1-D array"
    if is_array(array) and len(array.shape) != 1:
        return f"has the shape {tuple(array.shape)}, not one dimension"
    return "" if len(array) else "holds no audio"


def known_clip(path: str, duration: float | None, rate: float, size: int, error: str) -> dict[str, object]:
    """A clip measured here rather than by the library."""
    codec, method = ("", "") if error else ("array", "given")
    return {
        "path": path, "duration_s": duration, "claimed_duration_s": None, "sample_rate": int(rate),
        "channels": int(not error), "bits": 0, "codec": codec, "method": method, "size_bytes": size, "error": error,
    }  # fmt: skip
