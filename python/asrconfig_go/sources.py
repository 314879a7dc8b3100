"""What people pass as a dataset, turned into requests for the scanner.

A source is either one request that the library lists and measures by itself (folder, manifest, paths), or pieces read
here in order (rows with embedded bytes, arrays, streams).
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ._errors import EmptyDatasetError, InvalidArgumentError, NotFoundError

MANIFESTS = (".jsonl", ".json", ".csv", ".tsv")
STREAM_SAMPLE = 200  # clips read of a streamed dataset, whose files are remote


@dataclass
class Piece:
    """Some rows of a source: clips known already, encoded buffers, and paths, each with their row numbers."""

    known: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    buffers: list[dict[str, Any]] = field(default_factory=list)
    buffer_rows: list[int] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    path_rows: list[int] = field(default_factory=list)
    alive: list[Any] = field(default_factory=list)  # keeps the buffers' memory


@dataclass
class Source:
    """A request for one scan, or ``pieces`` with a ``label``.

    ``population`` is the number of rows that the pieces come from, None when a stream does not tell; ``sampled`` says
    that the pieces may be fewer.
    """

    request: dict[str, Any] | None = None
    pieces: Callable[[], Iterator[Piece]] = lambda: iter(())
    label: str = ""
    total: int | None = None
    population: int | None = None
    sampled: bool = False


def read_source(source: Any, *, sampling_rate: int, sample_size: int | None, seed: int) -> Source:
    """Recognise ``source``; raises ``InvalidArgumentError`` with what is accepted when it is none of it."""
    if isinstance(source, str | os.PathLike):
        return _path(Path(os.fspath(source)).expanduser())
    if hasattr(source, "column_names") and hasattr(source, "features"):
        from .hf_sources import read_hf_dataset

        return read_hf_dataset(source, sample_size=sample_size, seed=seed)
    if isinstance(source, dict):
        splits = ", ".join(map(repr, source))
        raise InvalidArgumentError(
            f"the dataset is a dictionary of {splits}",
            f"pass one split, such as dataset[{next(iter(source), 'train')!r}]",
        )
    if (_is_array(source) and len(source.shape) != 1) or isinstance(source, bytes | int | float | None):
        raise InvalidArgumentError(f"cannot read a dataset from {_kind(source)}", _ACCEPTED)
    try:
        items = list(source)
    except TypeError:
        raise InvalidArgumentError(f"cannot read a dataset from {_kind(source)}", _ACCEPTED) from None
    return _items(items, sampling_rate, sample_size, seed)


_ACCEPTED = (
    "pass a folder, an audio file, a manifest (.jsonl, .csv, .tsv), a list of paths, a datasets.Dataset with an Audio "
    'column, a list of 1-D arrays, or a list of {"array", "sampling_rate"}'
)


def _path(path: Path) -> Source:
    if path.is_dir():
        return Source({"folder": str(path)})
    if not path.exists():
        raise NotFoundError(f"the dataset {str(path)!r} does not exist", f"the working folder is {Path.cwd()}")
    if path.suffix.lower() in MANIFESTS:
        return Source({"manifest": str(path)})
    return Source({"paths": [str(path)]})


def _items(items: list[Any], sampling_rate: int, sample_size: int | None, seed: int) -> Source:
    if not items:
        raise EmptyDatasetError("the dataset is an empty list", _ACCEPTED)
    if all(isinstance(item, str | os.PathLike) for item in items):
        return Source({"paths": [os.fspath(item) for item in items]}, total=len(items))
    rows = list(range(len(items)))
    if sample_size is not None and sample_size < len(items):
        rows = sorted(random.Random(seed).sample(rows, sample_size))
    known = [(row, array_clip(items[row], row, sampling_rate)) for row in rows]
    return Source(
        None, lambda: iter((Piece(known=known),)), f"{len(items)} arrays", len(rows), len(items), len(rows) < len(items)
    )


def array_clip(item: Any, row: int, sampling_rate: int) -> dict[str, Any]:
    """The clip of a decoded array: its length over its rate. Samples are not looked at."""
    rate = sampling_rate
    if isinstance(item, dict):
        item, rate = item.get("array"), item.get("sampling_rate", sampling_rate)
    problem = _array_problem(item, rate)
    length = 0 if problem else len(item)
    return known_clip(f"[{row}]", length / rate if not problem else None, 0 if problem else rate, 4 * length, problem)


def _array_problem(array: Any, rate: Any) -> str:
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate <= 10_000_000:
        return f"sampling rate {rate!r} is not a positive number of hertz"
    if not _is_array(array) and not (
        isinstance(array, list | tuple) and all(isinstance(x, int | float) for x in array)
    ):
        return f"is {_kind(array)}, not a 1-D array"
    if _is_array(array) and len(array.shape) != 1:
        return f"has the shape {tuple(array.shape)}, not one dimension"
    return "" if len(array) else "holds no audio"


def known_clip(path: str, duration: float | None, rate: float, size: int, error: str) -> dict[str, Any]:
    """A clip measured here rather than by the library."""
    usable = not error
    return {
        "path": path,
        "duration_s": duration,
        "claimed_duration_s": None,
        "sample_rate": int(rate),
        "channels": int(usable),
        "codec": "array" if usable else "",
        "method": "given" if usable else "",
        "size_bytes": size,
        "error": error,
    }


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
            piece.known.append((row, known_clip(f"[{row}]", None, 0, 0, "has neither a path nor bytes")))
    return piece


def _is_array(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype")


def _kind(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
