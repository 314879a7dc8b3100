"""Transcripts as columns of tables hold them: numbers are texts, too, as they are written."""

from __future__ import annotations

import math
from typing import Any

from .column_names import text_columns, usual_columns


def texts_of(column: Any) -> list[Any]:
    """The values of an Arrow column: texts, lists of labels, or None for what is missing.

    Numbers and dates become texts. A column of whole numbers in which some are missing is one of floats in pandas.
    """
    import pyarrow as pa

    kind = column.type
    if pa.types.is_dictionary(kind):
        return [text(value) for value in column.to_pylist()]
    is_plain = pa.types.is_string(kind) or pa.types.is_large_string(kind) or "list" in str(kind)
    values: list[Any] = column.to_pylist()
    return values if is_plain else [text(value) for value in values]


def text(value: Any) -> Any:
    """A value as a text; lists and what is missing (None, NaN) as they are."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value) if isinstance(value, bool | int | float) or not hasattr(value, "__len__") else value


def dataset_texts(dataset: Any, name: str) -> list[Any]:
    """The texts of a column of a ``datasets.Dataset``, in the rows' order; class labels by their names."""
    values = texts_of(dataset.select_columns([name]).with_format("arrow")[:].column(name))
    names = getattr(dataset.features[name], "names", None)
    return values if names is None else [None if value is None else names[int(value)] for value in values]


def text_sizes(rows: Any) -> list[int]:
    """How many characters, or labels, each row of a table or a list of dictionaries holds; none where that is unknown.

    Of a ``datasets.Dataset`` only that column is read.
    """
    first = rows[0] if isinstance(rows, list) and rows and isinstance(rows[0], dict) else {}
    columns = getattr(rows, "column_names", None) or list(first)
    name = next(iter([*usual_columns(columns, text_columns()), *(n for n in columns if n == "labels")]), None)
    if name is None:
        return []
    if first:
        return [len(row[name]) if hasattr(row[name], "__len__") else 0 for row in rows]
    return _stored_sizes(rows.select_columns([name]).with_format("arrow")[:].column(name))


def _stored_sizes(column: Any) -> list[int]:
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return [size or 0 for size in pc.utf8_length(column).to_pylist()]
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        return [size or 0 for size in pc.list_value_length(column).to_pylist()]
    return []
