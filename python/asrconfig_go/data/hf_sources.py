"""Hugging Face datasets and streams as sources, without decoding."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from .._core.output import listed
from ..errors import EmptyDatasetError, InvalidArgumentError, UnsupportedError
from .columns import PREPARED_RATE, arrow_request, audio_columns, dataset_texts, text_columns, usual_columns
from .pieces import Piece, Source, array_clip, encoded_piece
from .prepared_rows import PreparedRows, input_column


def read_hf_dataset(dataset: Any, prepared: PreparedRows) -> Source:
    """A ``datasets.Dataset`` with an ``Audio`` or a path column, or with a model's input."""
    name = prepared_column(dataset)
    if len(dataset) and name is not None:
        return prepared.of_column(dataset, stored_column(dataset, name), name, _axes(dataset.features[name]))
    if len(dataset) and prepared.examples is not None and not _has_audio(dataset):
        return prepared.of_examples(dataset)
    return _tables([dataset], f"dataset of {len(dataset)} rows, column {audio_column(dataset)!r}")


def prepared_column(dataset: Any) -> str | None:
    """The column that is a model's input and no list of samples, which is measured as audio."""
    if not _has_audio(dataset):
        return input_column(dataset.features or {})
    column = audio_column(dataset)
    return column if column == "input_values" and _axes(dataset.features[column]) > 1 else None


def _has_audio(dataset: Any) -> bool:
    try:
        return bool(audio_column(dataset))
    except InvalidArgumentError:
        return False


def _axes(feature: Any) -> int:
    """The axes of a column's values: of lists of lists, or of an array."""
    if isinstance(feature, list):
        return 1 + _axes(feature[0])
    inner = getattr(feature, "feature", None)
    return 1 + _axes(inner) if inner is not None else len(getattr(feature, "shape", ()))


def read_hf_splits(splits: dict[Any, Any], prepared: PreparedRows) -> Source:
    """A ``DatasetDict``: its split ``train``, or all splits if there is none."""
    if "train" in splits:
        source = read_hf_dataset(splits["train"], prepared)
        source.label = source.label.replace("dataset", "split 'train'", 1)
        if source.request is not None:
            source.request["source"] = source.label
        return source
    sizes = listed(f"{name} {len(split)}" for name, split in splits.items())
    return _tables(list(splits.values()), f"dataset of {sizes} rows")


def _tables(datasets: list[Any], label: str) -> Source:
    rows = sum(map(len, datasets))
    if not rows:
        raise EmptyDatasetError("the dataset has no rows", "check the split and the filters applied to it")
    request, alive = arrow_request(stored_column(dataset, audio_column(dataset)) for dataset in datasets)

    def texts(column: str | None) -> list[Any]:
        columns = ((dataset, text_column(dataset.column_names, column)) for dataset in datasets)
        return [text for dataset, name in columns for text in dataset_texts(dataset, name)]

    return Source({"arrow": request, "source": label}, label=label, total=rows, alive=alive, texts=texts)


def stored_column(dataset: Any, name: str) -> tuple[Any, Any]:
    """A column as the dataset's table stores it, undecoded, and the dataset's rows of it, None for all."""
    indices = dataset._indices  # what select and shuffle leave instead of moving rows; there is no public name for it
    return dataset.data.table.column(name), None if indices is None else indices.table.column(0)


def text_column(names: Iterable[str], wanted: str | None) -> str:
    """The column of the transcripts: ``wanted``, or the first with a usual name, with ``labels`` last."""
    there = list(names)
    for name in [wanted] * (wanted in there) if wanted else usual_columns(there, (*text_columns(), "labels")):
        return str(name)
    missing = f"no column {wanted!r}" if wanted else "no column with texts"
    raise InvalidArgumentError(f"the dataset has {missing} (columns: {', '.join(there)})", "name it: text=…")


def audio_column(dataset: Any) -> str:
    """The column to measure: marked as ``Audio``, ``input_values``, or of paths or bytes under a usual name."""
    features = dataset.features or {}
    for name, feature in features.items():
        if type(feature).__name__ == "Audio":
            return str(name)
    for name in usual_columns(features, ("input_values", *audio_columns())):
        feature = features[name]
        if isinstance(feature, dict) and {"bytes", "path", "array"} & set(feature):
            return name
        if feature is not None and (name == "input_values" or getattr(feature, "dtype", "") in _STORED):
            return name
    raise InvalidArgumentError(
        f"the dataset has no Audio column (columns: {listed(dataset.column_names or ['unknown'])})",
        'mark it: dataset.cast_column("audio", datasets.Audio(decode=False)); of rows that only your collator '
        "understands: create_optimal_config(dataset, model, collator=collator)",
    )


_STORED = ("string", "large_string", "string_view", "binary", "large_binary", "binary_view")


def undecoded(dataset: Any, column: str) -> Any:
    """The dataset with its ``Audio`` column as it is stored, bytes and paths."""
    from datasets import Audio

    return dataset.cast_column(column, Audio(decode=False))


def undecoded_columns(dataset: Any) -> Any:
    """``dataset``, or a dictionary of them, with undecoded ``Audio`` columns, which ``load_audio`` decodes."""
    if isinstance(dataset, dict):
        return type(dataset)({name: undecoded_columns(part) for name, part in dataset.items()})
    for name, feature in (getattr(dataset, "features", None) or {}).items():
        if type(feature).__name__ == "Audio" and feature.decode:
            dataset = undecoded(dataset, name)
    return dataset


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
    from .hf_datasets import stored

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
