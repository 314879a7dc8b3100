"""Turns what users pass as a dataset into requests for the scanner.

A source is either one request that the library lists and measures by itself (folder, manifest, shards, paths, an Arrow
table in memory), or pieces read here in order (Parquet, arrays, streams).
"""

from __future__ import annotations

import glob
import os
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .._core.files import user_path, utf8
from .._core.output import listed
from ..errors import EmptyDatasetError, InvalidArgumentError, NotFoundError
from .digits import CLIPS
from .hf_sources import STREAM_SAMPLE, is_remote, open_stream, read_hf_dataset, read_hf_splits, read_stream
from .parquet_sources import parquet_files, read_arrow_file, read_frame, read_parquet, read_saved, read_table
from .pieces import Piece, Source, array_clip, is_array, kind
from .prepared_rows import PreparedRows

_MANIFESTS = (".jsonl", ".json", ".ndjson", ".csv", ".tsv", ".txt", ".lst", ".list", ".scp")
_KALDI = ("segments", "utt2dur", "reco2dur")
_SHARDS = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst")


def read_source(
    source: Any, *, sampling_rate: int, sample_size: int | None, seed: int, prepared: PreparedRows | None = None
) -> Source:
    """Recognise ``source``; raises ``InvalidArgumentError`` with the accepted kinds otherwise.

    ``prepared`` measures rows that hold a model's input.
    """
    prepared = prepared or PreparedRows()
    if isinstance(source, str) and is_remote(source):
        source = open_stream([source])
    if isinstance(source, str | os.PathLike):
        return _path(os.fsdecode(source), sample_size, seed)
    if hasattr(source, "column_names") and hasattr(source, "features"):
        if not hasattr(source, "__len__"):
            return read_stream(source, prepared, sample_size or STREAM_SAMPLE, seed)
        return read_hf_dataset(source, prepared)
    if hasattr(source, "column_names") and hasattr(source, "schema"):
        return read_table(source, f"table of {source.num_rows} rows")
    if hasattr(source, "columns") and hasattr(source, "iloc"):
        return read_frame(source)
    if isinstance(source, dict):
        return _splits(source, prepared, sample_size, seed)
    if (is_array(source) and len(source.shape) != 1) or isinstance(source, bytes | int | float | None):
        raise InvalidArgumentError(f"cannot read a dataset from {kind(source)}", _ACCEPTED)
    if _holds_prepared(source):
        return prepared.of_rows(source, sample_size, seed)
    try:
        # Without __iter__, as a torch dataset, items end where an IndexError says so, and many never raise one.
        items = list(source) if hasattr(source, "__iter__") else [source[i] for i in range(len(source))]
    except TypeError:
        raise InvalidArgumentError(f"cannot read a dataset from {kind(source)}", _ACCEPTED) from None
    return _items(items, sampling_rate, sample_size, seed)


def _holds_prepared(source: Any) -> bool:
    """Whether the rows of a list or a custom dataset are neither paths nor audio."""
    if not hasattr(source, "__getitem__") or not hasattr(source, "__len__") or not len(source):
        return False
    first = source[0]
    if isinstance(first, tuple):
        return not all(isinstance(value, int | float) for value in first)
    return isinstance(first, Mapping) and not {"array", "sampling_rate"} & set(first)


_ACCEPTED = (
    "pass a folder, an audio file, a manifest (.jsonl, .csv, .tsv, .scp, …), tar shards, Parquet files, a list of "
    "paths, a datasets.Dataset with an Audio column, a list of 1-D arrays, or a list of "
    '{"array", "sampling_rate"}'
)


def _splits(source: dict[Any, Any], prepared: PreparedRows, sample_size: int | None, seed: int) -> Source:
    splits = listed(map(repr, source))
    if source and all(hasattr(split, "column_names") for split in source.values()):
        if all(hasattr(split, "__len__") for split in source.values()):
            return read_hf_splits(source, prepared)
        if "train" in source:
            return read_stream(source["train"], prepared, sample_size or STREAM_SAMPLE, seed)
        splits += ", streamed"
    raise InvalidArgumentError(
        f"the dataset is a dictionary of {splits}", f"pass one split, such as dataset[{next(iter(source), 'train')!r}]"
    )


def _path(name: str, sample_size: int | None, seed: int) -> Source:
    if name.startswith("pipe:"):
        return Source({"shards": [name]})
    path = user_path(name, "dataset")
    if name == "demo" and not path.exists():
        path = CLIPS / "manifest.jsonl"
    if path.is_dir():
        return _folder(path, sample_size, seed)
    if not path.exists():
        return _pattern(name, str(path), sample_size, seed)
    plain = path.name.lower().removesuffix(".gz")
    if plain.endswith(_MANIFESTS) or plain in _KALDI:
        return Source({"manifest": utf8(path)})
    if path.name.lower().endswith(_SHARDS):
        return Source({"shards": [utf8(path)]})
    if plain.endswith(".parquet"):
        return read_parquet([path], sample_size=sample_size, seed=seed)
    return read_arrow_file(path) if plain.endswith(".arrow") else Source({"paths": [str(path)]})


def _folder(path: Path, sample_size: int | None, seed: int) -> Source:
    saved = read_saved(path)
    if saved is not None:
        return read_source(saved, sampling_rate=0, sample_size=sample_size, seed=seed)
    files = parquet_files(path)
    return read_parquet(files, sample_size=sample_size, seed=seed) if files else Source({"folder": utf8(path)})


def _pattern(name: str, pattern: str, sample_size: int | None, seed: int) -> Source:
    """Expands wildcards, or braces for tar shards; ``~`` is expanded in ``pattern``."""
    if set(name) & set("*?[{") and name.lower().endswith(_SHARDS):
        return Source({"shards": [pattern]})
    wild = bool(set(name) & set("*?["))
    paths = sorted(glob.glob(pattern, recursive=True)) if wild else []  # noqa: PTH207
    if not paths:
        raise NotFoundError(f"the dataset {name!r} does not exist", f"the working folder is {Path.cwd()}")
    if all(path.endswith(".parquet") for path in paths):
        return read_parquet([Path(path) for path in paths], sample_size=sample_size, seed=seed)
    return Source({"paths": paths}, total=len(paths))


def _items(items: list[Any], sampling_rate: int, sample_size: int | None, seed: int) -> Source:
    if not items:
        raise EmptyDatasetError("the dataset is an empty list", _ACCEPTED)
    kinds = set(map(type, items))  # a million paths are of one type or two
    if all(issubclass(item_type, str | os.PathLike) for item_type in kinds):
        paths = items if kinds == {str} else [os.fsdecode(item) for item in items]
        if all(map(is_remote, paths)):
            return read_source(open_stream(paths), sampling_rate=0, sample_size=sample_size, seed=seed)
        if all(path.lower().endswith(_SHARDS) for path in paths):
            return Source({"shards": paths})
        if all(path.lower().endswith(".parquet") for path in paths):
            return read_parquet([Path(path) for path in paths], sample_size=sample_size, seed=seed)
        return Source({"paths": paths}, total=len(paths))
    rows = list(range(len(items)))
    if sample_size is not None and sample_size < len(items):
        rows = sorted(random.Random(seed).sample(rows, sample_size))
    clips = [(row, array_clip(items[row], row, sampling_rate)) for row in rows]
    return Source(
        None, lambda: iter((Piece(clips=clips),)), f"{len(items)} arrays", len(rows), len(items), len(rows) < len(items)
    )
