"""A ``datasets.Dataset`` with a new column beside its table. Imports datasets; see ``lengths``."""

from __future__ import annotations

import hashlib
from typing import Any

import pyarrow as pa
from datasets import Dataset
from datasets.arrow_dataset import update_metadata_with_features
from datasets.features.features import generate_from_arrow_type
from datasets.table import InMemoryTable, concat_tables


class MeasuredDataset(Dataset):  # type: ignore[misc]
    """A ``Dataset`` that hands out its column of lengths as a list.

    A plain one gives a view that reads one row at a time, through the dataset's transform, which decodes audio: a
    sampler that sorts by length then waits for all of it.
    """

    _measured: str = ""

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str) and key == self._measured and key in self.column_names:
            return _in_order(self, key)
        return super().__getitem__(key)


def _in_order(dataset: Any, column: str) -> list[Any]:
    stored = dataset.data.table.column(column)
    if dataset._indices is not None:
        stored = stored.take(dataset._indices.table.column(0))
    values: list[Any] = stored.to_pylist()
    return values


def with_column(dataset: Any, column: str, values: list[Any]) -> MeasuredDataset:
    """The dataset with ``values``, numbers, texts or lists of them, in its own order.

    Its table, its indices and its format stay as they are.
    ``Dataset.add_column`` would copy the table of a dataset with indices, audio and all.
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
    return _formatted_like(measured, dataset, column)


def _scattered(values: Any, rows: Any, length: int) -> Any:
    """The values at their rows of the table; rows that the dataset does not take get null and are never seen."""
    import numpy as np

    places = np.full(length, -1)
    places[rows.to_numpy()] = np.arange(len(values))
    return values.take(pa.array(places, mask=places < 0))


def _fingerprint(dataset: Any, column: str, values: Any) -> str:
    """The same for the same values of the same dataset, so that what datasets caches behind it is found again."""
    digest = hashlib.sha256(f"{dataset._fingerprint} {column} {values.type}".encode())
    for buffer in filter(None, values.buffers()):
        digest.update(buffer)
    return digest.hexdigest()[:16]


def _formatted_like(measured: MeasuredDataset, dataset: Any, column: str) -> MeasuredDataset:
    given = dict(dataset.format)
    if given["type"] is None and set(given["columns"]) == set(dataset.column_names):
        return measured
    columns = None if set(given["columns"]) == set(dataset.column_names) else [*given["columns"], column]
    measured.set_format(
        type=given["type"], columns=columns, output_all_columns=given["output_all_columns"], **given["format_kwargs"]
    )
    return measured
