"""Transcripts in columns of tables; numbers become texts."""

from __future__ import annotations

import math
from typing import Any


def texts_of(column: Any) -> list[Any]:
    """The values of an Arrow column: texts, lists of labels, or None for what is missing.

    Numbers and dates become texts. A column of whole numbers in which some are missing is one of floats in pandas.
    """
    import pyarrow as pa

    kind, values = column.type, column.to_pylist()
    is_list = "list" in str(kind) and not pa.types.is_dictionary(kind)
    is_plain = pa.types.is_string(kind) or pa.types.is_large_string(kind) or is_list
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
