"""What people pass as a dataset, turned into requests for the scanner.

A source is either one request that the library lists and measures by itself (folder, manifest, paths), or pieces read
here in order (rows with embedded bytes, arrays, streams).
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

from ._errors import EmptyDatasetError, InvalidArgumentError, NotFoundError
from .hf_sources import read_hf_dataset
from .pieces import Piece, Source, array_clip, is_array, kind

MANIFESTS = (".jsonl", ".json", ".ndjson", ".csv", ".tsv")


def read_source(source: Any, *, sampling_rate: int, sample_size: int | None, seed: int) -> Source:
    """Recognise ``source``; raises ``InvalidArgumentError`` with what is accepted when it is none of it."""
    if isinstance(source, str | os.PathLike):
        return _path(Path(os.fsdecode(source)).expanduser())
    if hasattr(source, "column_names") and hasattr(source, "features"):
        return read_hf_dataset(source, sample_size=sample_size, seed=seed)
    if isinstance(source, dict):
        splits = ", ".join(map(repr, source))
        raise InvalidArgumentError(
            f"the dataset is a dictionary of {splits}",
            f"pass one split, such as dataset[{next(iter(source), 'train')!r}]",
        )
    if (is_array(source) and len(source.shape) != 1) or isinstance(source, bytes | int | float | None):
        raise InvalidArgumentError(f"cannot read a dataset from {kind(source)}", _ACCEPTED)
    try:
        items = list(source)
    except TypeError:
        raise InvalidArgumentError(f"cannot read a dataset from {kind(source)}", _ACCEPTED) from None
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
        return Source({"paths": [os.fsdecode(item) for item in items]}, total=len(items))
    rows = list(range(len(items)))
    if sample_size is not None and sample_size < len(items):
        rows = sorted(random.Random(seed).sample(rows, sample_size))
    known = [(row, array_clip(items[row], row, sampling_rate)) for row in rows]
    return Source(
        None, lambda: iter((Piece(known=known),)), f"{len(items)} arrays", len(rows), len(items), len(rows) < len(items)
    )
