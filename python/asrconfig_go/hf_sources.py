"""Hugging Face datasets as sources, without decoding: paths, bytes by address, or prepared ``input_values``."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice
from typing import Any

from ._errors import EmptyDatasetError, InvalidArgumentError
from .pieces import Piece, Source, array_clip, encoded_piece, known_clip

STREAM_SAMPLE = 200  # clips read of a streamed dataset, whose files are remote
_ROWS = 1_000  # rows read at once
_PREPARED_RATE = 16_000  # hertz of input_values: every speech model of transformers is trained at it


def read_hf_dataset(dataset: Any, *, sample_size: int | None, seed: int) -> Source:
    """A ``datasets.Dataset`` or ``IterableDataset`` with an ``Audio`` or an ``input_values`` column."""
    if not hasattr(dataset, "__len__"):
        return _streamed(dataset, sample_size or STREAM_SAMPLE)
    if len(dataset) == 0:
        raise EmptyDatasetError("the dataset has no rows", "check the split and the filters applied to it")
    column, encoded = _audio_column(dataset)
    rows = list(range(len(dataset)))
    if sample_size is not None and sample_size < len(rows):
        rows = sorted(random.Random(seed).sample(rows, sample_size))
        dataset_rows = dataset.select(rows)
    else:
        dataset_rows = dataset
    read = _encoded_pieces if encoded else _prepared_pieces
    label = f"dataset of {len(dataset)} rows, column {column!r}"
    return Source(None, lambda: read(dataset_rows, column), label, len(rows), len(dataset), len(rows) < len(dataset))


def _audio_column(dataset: Any) -> tuple[str, bool]:
    """The column to measure and whether it holds encoded audio."""
    features = dataset.features or {}
    for name, feature in features.items():
        if type(feature).__name__ == "Audio":
            return name, True
    if "input_values" in features:
        return "input_values", False
    raise InvalidArgumentError(
        f"the dataset has no Audio column (columns: {', '.join(dataset.column_names or ['unknown'])})",
        'mark it: dataset.cast_column("audio", datasets.Audio(decode=False)), or pass a list of paths',
    )


def _undecoded(dataset: Any, column: str) -> Any:
    from datasets import Audio

    return dataset.cast_column(column, Audio(decode=False))


def _encoded_pieces(dataset: Any, column: str) -> Iterator[Piece]:
    table = _undecoded(dataset.select_columns([column]), column).with_format("arrow")
    for start in range(0, len(dataset), _ROWS):
        structs = table[start : start + _ROWS].column(column).combine_chunks()
        paths = structs.field("path").to_pylist()
        data = structs.field("bytes")
        # as_buffer is a view of Arrow's own memory, often of the file itself: nothing is copied.
        buffers = (data[i].as_buffer() if data[i].is_valid else None for i in range(len(paths)))
        yield encoded_piece(zip(range(start, start + len(paths)), paths, buffers, strict=True))


def _prepared_pieces(dataset: Any, column: str) -> Iterator[Piece]:
    import pyarrow.compute as pc

    table = dataset.select_columns([column]).with_format("arrow")
    for start in range(0, len(dataset), _ROWS):
        lengths = pc.list_value_length(table[start : start + _ROWS].column(column)).to_pylist()
        yield Piece(known=[(start + i, _prepared_clip(start + i, n or 0)) for i, n in enumerate(lengths)])


def _prepared_clip(row: int, length: int) -> dict[str, Any]:
    error = "" if length else "holds no audio"
    return known_clip(
        f"[{row}]", length / _PREPARED_RATE if length else None, _PREPARED_RATE if length else 0, 4 * length, error
    )


def _streamed(dataset: Any, limit: int) -> Source:
    """The first rows of a stream: it cannot be sampled at random without reading it whole."""
    column, encoded = _audio_column(dataset)
    population = _split_size(dataset)
    rows = _undecoded(dataset, column) if encoded else dataset

    def pieces() -> Iterator[Piece]:
        import pyarrow as pa

        for number, row in enumerate(islice(rows, limit)):
            value = row[column]
            if encoded:
                data = None if value.get("bytes") is None else pa.py_buffer(value["bytes"])
                yield encoded_piece([(number, value.get("path"), data)])
            else:
                yield Piece(known=[(number, array_clip(value, number, _PREPARED_RATE))])

    total = limit if population is None else min(limit, population)
    sampled = population is None or limit < population
    return Source(None, pieces, f"first {limit} rows of a stream, column {column!r}", total, population, sampled)


def _split_size(dataset: Any) -> int | None:
    splits = getattr(dataset.info, "splits", None) or {}
    split = splits.get(str(dataset.split)) if dataset.split is not None else None
    return split.num_examples if split is not None else None
