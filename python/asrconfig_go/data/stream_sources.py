"""Streams as sources: ``datasets.IterableDataset``, remote shards by address. A sample of them is measured, undecoded."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from .._base.errors import InvalidArgumentError, UnsupportedError
from .arrow_columns import PREPARED_RATE
from .hf_sources import audio_column, prepared_column
from .pieces import Piece, Source, array_clip, encoded_piece
from .prepared_rows import PreparedRows

STREAM_SAMPLE = 200  # clips read of a streamed dataset, whose files are remote
_SHARDS = 10  # that they are read from: opening one may take seconds
_BUILDERS = {".parquet": "parquet", ".tar": "webdataset"}


def is_remote(name: str) -> bool:
    """Whether a name is an address that fsspec opens, such as ``hf://``, ``s3://`` or ``https://``."""
    return "://" in name and not name.startswith("pipe:")


def open_stream(names: Sequence[str]) -> Any:
    """Tar shards (WebDataset) or Parquet files at addresses that fsspec opens, as a ``datasets.IterableDataset``."""
    builders = {builder for name in names for end, builder in _BUILDERS.items() if end in name.lower()}
    if len(builders) != 1 or not all(map(is_remote, names)):
        raise InvalidArgumentError(
            f"cannot stream {names[0]}", "pass addresses of .tar shards or of .parquet files, not of both"
        )
    try:
        from datasets import load_dataset
    except ImportError:
        raise UnsupportedError(
            f"streaming {names[0]} needs the package datasets", "pip install datasets, or download the files first"
        ) from None
    return load_dataset(builders.pop(), data_files=list(names), split="train", streaming=True)


def read_stream(dataset: Any, prepared: PreparedRows, limit: int, seed: int) -> Source:
    """The first rows of some shards: a stream cannot be sampled at random without reading it whole."""
    from .undecoded_audio import stored

    dataset = resolved(dataset)
    population = _split_size(dataset)
    name = prepared_column(dataset)
    rows, shards = _first_rows(stored(dataset), limit, seed)
    where = f"first {limit} rows of a stream" if shards == 1 else f"{limit} rows of {shards} shards of a stream"
    if name is not None:
        return prepared.of_stream(rows, name, limit, population, where)
    column = audio_column(dataset)

    def pieces() -> Iterator[Piece]:
        for number, row in enumerate(rows):
            yield _piece(number, row[column])

    total = limit if population is None else min(limit, population)
    sampled = population is None or limit < population
    return Source(None, pieces, f"{where}, column {column!r}", total, population, sampled)


def _first_rows(dataset: Any, limit: int, seed: int) -> tuple[Iterator[Any], int]:
    """As many rows of each of several shards, so that one does not decide; and the number of shards."""
    from datasets.distributed import split_dataset_by_node

    every = _shards(dataset)
    if every == 1 or limit == 1 or getattr(dataset, "_distributed", None) is not None:
        return islice(dataset, limit), 1
    taken = sorted(random.Random(seed).sample(range(every), min(every, _SHARDS, limit)))

    def rows() -> Iterator[Any]:
        left = limit
        for at, shard in enumerate(taken):
            share = -(-left // (len(taken) - at))  # what a short shard lacks, the others make up for
            for row in islice(split_dataset_by_node(dataset, shard, every), share):
                left -= 1
                yield row

    return rows(), len(taken)


def _shards(dataset: Any) -> int:
    found = getattr(dataset, "num_shards", None) or getattr(dataset, "n_shards", 1)  # datasets 3.0 has the latter
    return int(found)


def resolved(dataset: Any) -> Any:
    """The dataset with its features known, which may take reading its first rows."""
    return dataset._resolve_features() if dataset.features is None else dataset


def with_bytes(value: Any) -> Any:
    """A stored clip with its bytes, where only a remote file's address is stored."""
    path = value.get("path") if isinstance(value, dict) else None
    if path is None or value.get("bytes") is not None or "array" in value or "://" not in path:
        return value
    import fsspec

    with fsspec.open(path, "rb") as file:
        return {**value, "bytes": file.read()}


def clips_piece(clips: Sequence[Any]) -> Piece:
    """A piece of clips as rows of a stream hold them."""
    whole = Piece()
    for number, clip in enumerate(clips):
        piece = _piece(number, clip)
        for mine, other in zip(vars(whole).values(), vars(piece).values(), strict=True):
            if isinstance(mine, list):
                mine += other
    return whole


def _piece(number: int, value: Any) -> Piece:
    import pyarrow as pa

    if isinstance(value, str):
        return encoded_piece([(number, value, None)])
    if isinstance(value, bytes):
        value = {"bytes": value}
    if value is None or (isinstance(value, dict) and "array" not in value):
        value = with_bytes(value or {})
        data = None if value.get("bytes") is None else pa.py_buffer(value["bytes"])
        return encoded_piece([(number, value.get("path"), data)])
    return Piece(known=[(number, array_clip(value, number, PREPARED_RATE))])


def _split_size(dataset: Any) -> int | None:
    splits = getattr(dataset.info, "splits", None) or {}
    split = splits.get(str(dataset.split)) if dataset.split is not None else None
    return split.num_examples if split is not None else None
