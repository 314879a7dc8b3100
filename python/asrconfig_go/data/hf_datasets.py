"""A ``datasets.Dataset`` with a further column, and streams without decoding. Imports datasets."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import pyarrow as pa
from datasets import Audio, Dataset, IterableDataset
from datasets.arrow_dataset import update_metadata_with_features
from datasets.features.features import generate_from_arrow_type
from datasets.table import InMemoryTable, concat_tables

from .._core.stored_clip import StoredClip
from .source import open_source


class MeasuredDataset(Dataset):  # type: ignore[misc]
    """A ``Dataset`` that returns its column of lengths as a list.

    A plain one returns a view that reads one row at a time through the dataset's transform, which decodes audio: a
    sampler that sorts by length would wait for all of it.
    """

    _measured: str = ""

    def __getitem__(self, key: object) -> object:
        if not (isinstance(key, str) and key == self._measured and key in self.column_names):
            return super().__getitem__(key)
        stored = self.data.table.column(key)
        return (stored if self._indices is None else stored.take(self._indices.table.column(0))).to_pylist()


def with_column(dataset: Dataset, column: str, values: Sequence[object]) -> MeasuredDataset:
    """The dataset with ``values``, numbers, texts or lists of them, in its own order.

    ``Dataset.add_column`` would copy the table of a dataset with indices, with its audio.
    """
    stored = pa.array(values, None if values else pa.int64())
    if dataset._indices is not None:
        stored = _scattered(stored, dataset._indices.table.column(0), len(dataset.data))
    info = dataset.info.copy()
    info.features[column] = generate_from_arrow_type(stored.type)
    table = concat_tables([dataset.data, InMemoryTable(pa.table({column: stored}))], axis=1)
    measured = MeasuredDataset(
        update_metadata_with_features(table, info.features),
        info=info,
        split=dataset.split,
        indices_table=dataset._indices,
        fingerprint=_fingerprint(dataset, column, stored),
    )
    measured._measured = column
    formatted_like(measured, dataset)
    return measured


def _scattered(values: pa.Array, rows: pa.ChunkedArray, length: int) -> pa.Array:
    """The values at their rows of the table; rows outside of the dataset are null."""
    import numpy as np

    places = np.full(length, -1)
    places[rows.to_numpy()] = np.arange(len(values))
    return values.take(pa.array(places, mask=places < 0))


def _fingerprint(dataset: Dataset, column: str, values: pa.Array) -> str:
    """The same for the same values of the same dataset, so that results cached by datasets are found again."""
    digest = hashlib.sha256(f"{dataset._fingerprint} {column} {values.type}".encode())
    for buffer in filter(None, values.buffers()):
        digest.update(buffer)
    return digest.hexdigest()[:16]


def formatted_like(new: Dataset, dataset: Dataset) -> Dataset:
    """``new`` with the format or transform of ``dataset``, which its further columns are part of."""
    layout = dict(dataset.format)
    further = [name for name in new.column_names if name not in dataset.column_names]
    every = set(layout["columns"]) == set(dataset.column_names)
    if layout["type"] is not None or not every:
        new.set_format(
            layout["type"], None if every else [*layout["columns"], *further], layout["output_all_columns"],
            **layout["format_kwargs"],
        )  # fmt: skip
    return new


class UndecodedAudio(Audio):  # type: ignore[misc]
    """``Audio(decode=False)`` for rows of tar shards, for which a plain one imports torchcodec."""

    def encode_example(self, value: object) -> dict[str, object]:
        """The stored form of a path, of bytes, or of a dictionary of both."""
        clip = StoredClip.of(value)
        if clip.kind in ("path", "bytes"):
            return {"bytes": clip.value if clip.kind == "bytes" else None, "path": clip.path or None}
        encoded: dict[str, object] = super().encode_example(value)
        return encoded


def stored(dataset: IterableDataset) -> IterableDataset:
    """The stream with audio as it is stored."""
    for name in open_source(dataset).audio_features():
        dataset = dataset.cast_column(name, UndecodedAudio(decode=False))
    return dataset
