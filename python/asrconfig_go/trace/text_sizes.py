"""How long the texts of a dataset are, without reading anything else of it."""

from __future__ import annotations

from typing import Any

from .._base import native


def text_sizes(rows: Any) -> list[int]:
    """How many characters, or labels, each row of a table or a list of dictionaries holds; none where that is unknown.

    Of a ``datasets.Dataset`` only that column is read.
    """
    first = rows[0] if isinstance(rows, list) and rows and isinstance(rows[0], dict) else {}
    texts = native.call("library.info")["text_columns"]
    columns = getattr(rows, "column_names", None) or list(first)
    name = next(iter([*(n for n in columns if str(n).lower() in texts), *(n for n in columns if n == "labels")]), None)
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
