"""Audio columns of Arrow tables as requests to the library: addresses of their buffers, nothing is copied or decoded.

A column is a struct of ``bytes`` and ``path`` (what datasets' ``Audio`` stores), binary, text (paths), or lists of
samples.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from .._base.defaults import SAMPLING_RATE
from .._base.errors import InvalidArgumentError
from .._base.listing import listed
from .column_names import audio_columns, usual_columns

_FIELDS = {"bytes": "bytes", "path": "paths"}  # of the struct, and of the request
PREPARED_RATE = SAMPLING_RATE  # of input_values


def arrow_request(columns: Iterable[tuple[Any, Any]], *, first: int = 0) -> tuple[dict[str, Any], list[Any]]:
    """The ``arrow`` argument of a scan for (chunked column, indices or None) pairs, and what must be kept alive for it.

    ``indices`` are the rows to take of that column, an Arrow array of uint64; ``first`` is the number of the first row.
    """
    batches: list[dict[str, Any]] = []
    alive: list[Any] = []
    rows: list[tuple[int, int, Any]] = []  # start and length of each column in the table, and its indices
    rates: set[int] = set()
    start = 0
    for column, indices in columns:
        rows.append((start, len(column), indices))
        start += len(column)
        for chunk in filter(len, column.chunks):
            batch, arrays = _batch(chunk, rates)
            batches.append(batch)
            alive.append(arrays)
    if len(rates) > 1:
        raise InvalidArgumentError(
            f"the arrays of the dataset have the sampling rates {sorted(rates)}", "pass the rows of one rate at a time"
        )
    request: dict[str, Any] = {"batches": batches, "first": first, "rate": next(iter(rates), PREPARED_RATE)}
    if any(indices is not None for _, _, indices in rows):
        wanted = _all_indices(rows)
        request |= {"indices": wanted.buffers()[1].address + 8 * wanted.offset, "count": len(wanted)}
        alive.append(wanted)
    return request, alive


def _all_indices(rows: list[tuple[int, int, Any]]) -> Any:
    """The indices of several columns as those of the columns one behind the other."""
    import pyarrow as pa
    import pyarrow.compute as pc

    parts = []
    for start, length, indices in rows:
        if indices is None:
            parts.append(pa.array(range(start, start + length), pa.uint64()))
            continue
        numbers = indices.cast(pa.uint64())
        for chunk in numbers.chunks if isinstance(numbers, pa.ChunkedArray) else [numbers]:
            parts.append(pc.add(chunk, pa.scalar(start, pa.uint64())) if start else chunk)
    return parts[0] if len(parts) == 1 else pa.concat_arrays(parts or [pa.array([], pa.uint64())])


def _batch(chunk: Any, rates: set[int]) -> tuple[dict[str, Any], Any]:
    """One chunk, and the arrays that its addresses belong to."""
    import pyarrow as pa

    chunk = _plain(chunk)
    batch: dict[str, Any] = {"rows": len(chunk)}
    if not pa.types.is_struct(chunk.type):
        column = _buffers(chunk)
        is_list = pa.types.is_list(chunk.type) or pa.types.is_large_list(chunk.type)
        is_text = pa.types.is_string(chunk.type) or pa.types.is_large_string(chunk.type)
        return batch | {"lengths" if is_list else "paths" if is_text else "bytes": column}, chunk
    names = [field.name for field in chunk.type]
    fields = {name: _plain(chunk.field(name)) for name in ("bytes", "path", "array") if name in names}
    if "array" in fields and "bytes" not in fields:
        if "sampling_rate" in names:
            rates.update(rate for rate in chunk.field("sampling_rate").unique().to_pylist() if rate)
        return batch | {"lengths": _buffers(fields["array"])}, fields
    if not fields:
        raise InvalidArgumentError(
            f"cannot read audio from structs of {listed(names)}", "store a struct of bytes and path"
        )
    valid = chunk.buffers()[0]
    if valid is not None and chunk.null_count:
        batch |= {"valid": valid.address, "from": chunk.offset}
    batch |= {sent: _buffers(fields[name]) for name, sent in _FIELDS.items() if name in fields}
    return batch, (chunk, fields)


def _plain(array: Any) -> Any:
    """The array with a layout that the library reads: few arrays have another one, and are copied."""
    import pyarrow as pa

    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        return _plain(array.storage)
    if pa.types.is_dictionary(kind):
        return _plain(array.dictionary_decode())
    if pa.types.is_null(kind):
        return array.cast(pa.string())
    if pa.types.is_fixed_size_list(kind):
        return array.cast(pa.large_list(kind.value_type))
    if pa.types.is_fixed_size_binary(kind) or "binary_view" in str(kind):
        return array.cast(pa.large_binary())
    return array.cast(pa.large_string()) if "string_view" in str(kind) else array


def _buffers(array: Any) -> dict[str, Any]:
    """The addresses of an array of variable length that is not empty."""
    import pyarrow.types as kinds

    kind, buffers = array.type, array.buffers()
    is_list = kinds.is_list(kind) or kinds.is_large_list(kind)
    wide = kinds.is_large_binary(kind) or kinds.is_large_string(kind) or kinds.is_large_list(kind)
    if not (is_list or wide or kinds.is_binary(kind) or kinds.is_string(kind)):
        raise InvalidArgumentError(
            f"cannot read audio from a column of the type {kind}", "store encoded bytes, paths, or lists of samples"
        )
    column = {"offsets": buffers[1].address, "width": 64 if wide else 32, "from": array.offset}
    if buffers[0] is not None and array.null_count:
        column["valid"] = buffers[0].address
    if not is_list and buffers[2] is not None and buffers[2].size:
        column |= {"data": buffers[2].address, "size": buffers[2].size}
    return column


def audio_column(schema: Any) -> str:
    """The audio column of an Arrow schema: marked as ``Audio`` by datasets, or known by its type and name."""
    import pyarrow as pa

    described = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
    for name, feature in (described.get("info", {}).get("features") or {}).items():
        if isinstance(feature, dict) and feature.get("_type") == "Audio" and name in schema.names:
            return str(name)
    structs = [f.name for f in schema if pa.types.is_struct(f.type) and {"bytes", "array"} & {g.name for g in f.type}]
    named = usual_columns(schema.names, (*audio_columns(), "bytes", "flac", "mp3", "input_values"))
    if not structs and not named:
        raise InvalidArgumentError(
            f"the table has no audio column (columns: {listed(schema.names)})",
            "store a struct of bytes and path, or name the column with the paths one of: " + ", ".join(audio_columns()),
        )
    return str((structs or named)[0])
