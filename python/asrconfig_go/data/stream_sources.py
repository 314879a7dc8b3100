"""Streams as sources: ``datasets.IterableDataset``, remote shards by address. A sample of them is measured."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from .._base.errors import EmptyDatasetError, InvalidArgumentError, UnsupportedError
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


def is_stream(dataset: Any) -> bool:
    """Whether clips can only be read in sequence, as from streams of datasets, their dictionaries, and URLs."""
    if isinstance(dataset, str | list):
        first = dataset[0] if isinstance(dataset, list) and dataset else dataset
        return isinstance(first, str) and is_remote(first)
    parts = dataset.values() if isinstance(dataset, dict) else (dataset,)
    return any(hasattr(part, "__iter__") and not hasattr(part, "__len__") for part in parts)


def open_stream(names: Sequence[str]) -> Any:
    """Tar shards (WebDataset) or Parquet files at addresses that fsspec opens, as a ``datasets.IterableDataset``."""
    remote = all(isinstance(name, str) and is_remote(name) for name in names)
    builders = {builder for name in names if remote for end, builder in _BUILDERS.items() if end in name.lower()}
    if len(builders) != 1:
        raise InvalidArgumentError(
            f"cannot stream {', '.join(map(str, names[:1]))}",
            'pass addresses of .tar shards or of .parquet files, such as "https://example.org/train-00.tar"',
        )
    try:
        from datasets import load_dataset
    except ImportError:
        raise UnsupportedError(
            f"streaming {names[0]} needs the package datasets", "pip install datasets, or download the files first"
        ) from None
    return load_dataset(builders.pop(), data_files=list(names), split="train", streaming=True)


def read_stream(dataset: Any, prepared: PreparedRows, limit: int, seed: int) -> Source:
    """The first rows of some shards: sampling a stream at random would read all of it."""
    from .undecoded_audio import stored

    dataset = resolved(dataset)
    split = (getattr(dataset.info, "splits", None) or {}).get(str(dataset.split))
    population = None if split is None else split.num_examples
    name = prepared_column(dataset)
    sampled, undecoded, shards = population is None or limit < population, stored(dataset), list[int]()
    if sampled and _shards(dataset) > 1 and getattr(dataset, "_distributed", None) is None:
        where = f"{limit} rows of a stream of {_shards(dataset)} shards"
        rows = _first_rows(undecoded, limit, seed, shards)
    else:
        where, rows = f"first {limit} rows of a stream", islice(undecoded, limit)
    if name is not None:
        return prepared.of_stream(rows, name, limit, population, where, shards)
    column = audio_column(dataset)

    def pieces() -> Iterator[Piece]:
        for number, row in enumerate(rows):
            yield _piece(number, row[column])

    total = limit if population is None else min(limit, population)
    return Source(None, pieces, f"{where}, column {column!r}", total, population, sampled, shards)


def _first_rows(dataset: Any, limit: int, seed: int, shards: list[int]) -> Iterator[Any]:
    """A tenth of the rows from each of ten random shards, or more, so that no single one decides.

    The number of rows read from each is appended to ``shards``.
    """
    from datasets.distributed import split_dataset_by_node

    every = _shards(dataset)
    share = -(-limit // min(every, _SHARDS))
    for shard in random.Random(seed).sample(range(every), every):
        shards.append(0)
        for row in islice(split_dataset_by_node(dataset, shard, every), min(share, limit - sum(shards))):
            shards[-1] += 1
            yield row
        if sum(shards) == limit:
            return


def _shards(dataset: Any) -> int:
    return int(dataset.num_shards if hasattr(dataset, "num_shards") else dataset.n_shards)  # n_shards in datasets 3.0


def resolved(dataset: Any) -> Any:
    """The dataset with its features known, which may take reading its first rows."""
    try:
        return dataset._resolve_features() if dataset.features is None else dataset
    except StopIteration:
        raise no_rows() from None


def no_rows() -> EmptyDatasetError:
    """The error for a stream without rows."""
    return EmptyDatasetError("the stream has no rows", "check its files, its split and its filters")


def with_bytes(value: Any) -> Any:
    """A stored clip with its bytes, where only a remote file's address is stored."""
    path = value.get("path") if isinstance(value, dict) else None
    if path is None or value.get("bytes") is not None or "array" in value or "://" not in path:
        return value
    import fsspec

    with fsspec.open(path, "rb") as file:
        return {**value, "bytes": file.read()}


def clips_piece(clips: Sequence[Any]) -> Piece:
    """A piece of a stream's clips."""
    combined = Piece()
    for number, clip in enumerate(clips):
        piece = _piece(number, clip)
        for mine, other in zip(vars(combined).values(), vars(piece).values(), strict=True):
            if isinstance(mine, list):
                mine += other
    return combined


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
    return Piece(clips=[(number, array_clip(value, number, PREPARED_RATE))])
