"""Hugging Face datasets as sources, without decoding: their Arrow tables by address. Streams: ``stream_sources``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .._base.errors import EmptyDatasetError, InvalidArgumentError
from .._base.listing import listed
from .arrow_columns import arrow_request
from .column_names import audio_columns, text_columns, usual_columns
from .pieces import Source
from .prepared_rows import PreparedRows, input_column
from .text_values import dataset_texts


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
