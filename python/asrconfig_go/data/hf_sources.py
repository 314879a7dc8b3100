"""Hugging Face datasets and streams as input of a scan, without decoding."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from .._core.output import listed
from ..errors import EmptyDatasetError
from .columns import arrow_request, audio_column, axes_of_type, is_audio, text_column, texts_of
from .scan_rows import Piece, PreparedRows, ScanInput, Text, input_column, stored_piece

if TYPE_CHECKING:
    import pyarrow as pa
    from datasets import Dataset, IterableDataset

STREAM_SAMPLE = 200  # clips read of a streamed dataset, whose files are remote
_SHARDS = 10  # that they are read from: opening one may take seconds


def read_hf_dataset(dataset: Dataset, prepared: PreparedRows) -> ScanInput:
    """A ``datasets.Dataset`` with an ``Audio`` or a path column, or with a model's input."""
    schema = schema_of(dataset)
    name = prepared_column(schema)
    if len(dataset) and name is not None:
        return prepared.of_column(dataset, stored_column(dataset, name), name, axes_of_type(schema.field(name).type))
    if len(dataset) and prepared.examples is not None and not is_audio(schema):
        return prepared.of_examples(dataset)
    return _tables([dataset], f"dataset of {len(dataset)} rows, column {audio_column(schema)!r}")


def schema_of(dataset: Dataset | IterableDataset) -> pa.Schema:
    """The Arrow schema of a dataset or a stream, empty where it is not known."""
    import pyarrow as pa

    return pa.schema([]) if not dataset.features else dataset.features.arrow_schema


def prepared_column(schema: pa.Schema) -> str | None:
    """The column that is a model's input and no list of samples, which is measured as audio."""
    if not is_audio(schema):
        return input_column(schema.names)
    column = audio_column(schema)
    return column if column == "input_values" and axes_of_type(schema.field(column).type) > 1 else None


def read_hf_splits(splits: Mapping[str, Dataset], prepared: PreparedRows) -> ScanInput:
    """A ``DatasetDict``: its split ``train``, or all splits if there is none."""
    if "train" in splits:
        source = read_hf_dataset(splits["train"], prepared)
        source.label = source.label.replace("dataset", "split 'train'", 1)
        if source.request is not None:
            source.request["source"] = source.label
        return source
    sizes = listed(f"{name} {len(split)}" for name, split in splits.items())
    return _tables(list(splits.values()), f"dataset of {sizes} rows")


def _tables(datasets: Sequence[Dataset], label: str) -> ScanInput:
    rows = sum(map(len, datasets))
    if not rows:
        raise EmptyDatasetError("the dataset has no rows", "check the split and the filters applied to it")
    columns = [stored_column(dataset, audio_column(schema_of(dataset))) for dataset in datasets]
    request, alive = arrow_request(columns)

    def texts(column: str | None) -> list[Text]:
        named = ((dataset, text_column(dataset.column_names, column)) for dataset in datasets)
        return [text for dataset, name in named for text in dataset_texts(dataset, name)]

    return ScanInput({"arrow": request, "source": label}, label=label, total=rows, alive=alive, texts=texts)


def stored_column(dataset: Dataset, name: str) -> tuple[pa.ChunkedArray, pa.ChunkedArray | None]:
    """A column as the dataset's table stores it, undecoded, and the dataset's rows of it, None for all."""
    indices = dataset._indices  # what select and shuffle leave instead of moving rows; there is no public name for it
    return dataset.data.table.column(name), None if indices is None else indices.table.column(0)


def dataset_texts(dataset: Dataset, name: str) -> list[Text]:
    """The texts of a column of a ``datasets.Dataset``, in the rows' order; class labels by their names."""
    values = texts_of(dataset.select_columns([name]).with_format("arrow")[:].column(name))
    names = getattr(dataset.features[name], "names", None)
    return values if names is None else [None if value is None else names[int(value)] for value in values]


def read_stream(dataset: IterableDataset, prepared: PreparedRows, limit: int, seed: int) -> ScanInput:
    """The first rows of some shards: sampling a stream at random would read all of it."""
    from .hf_datasets import stored

    dataset = resolved(dataset)
    split = (getattr(dataset.info, "splits", None) or {}).get(str(dataset.split))
    population = None if split is None else split.num_examples
    schema, undecoded, shards = schema_of(dataset), stored(dataset), list[int]()
    sampled, name = population is None or limit < population, prepared_column(schema)
    if sampled and _shards(dataset) > 1 and getattr(dataset, "_distributed", None) is None:
        where = f"{limit} rows of a stream of {_shards(dataset)} shards"
        rows = _first_rows(undecoded, limit, seed, shards)
    else:
        where, rows = f"first {limit} rows of a stream", islice(undecoded, limit)
    if name is not None:
        return prepared.of_stream(rows, name, limit, population, where, shards)
    column = audio_column(schema)

    def pieces() -> Iterator[Piece]:
        for number, row in enumerate(rows):
            yield stored_piece([(number, row[column])])

    total = limit if population is None else min(limit, population)
    return ScanInput(None, pieces, f"{where}, column {column!r}", total, population, sampled, shards)


def _first_rows(dataset: IterableDataset, limit: int, seed: int, shards: list[int]) -> Iterator[Mapping[str, Any]]:
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


def _shards(dataset: IterableDataset) -> int:
    return int(dataset.num_shards if hasattr(dataset, "num_shards") else dataset.n_shards)  # n_shards in datasets 3.0


def resolved(dataset: IterableDataset) -> IterableDataset:
    """The dataset with its features known, which may take reading its first rows."""
    try:
        return dataset._resolve_features() if dataset.features is None else dataset
    except StopIteration:
        raise no_rows() from None


def no_rows() -> EmptyDatasetError:
    """The error for a stream without rows."""
    return EmptyDatasetError("the stream has no rows", "check its files, its split and its filters")
