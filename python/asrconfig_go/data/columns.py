"""Which columns of a table hold audio and transcripts, and both as requests to the library.

A column is a struct of ``bytes`` and ``path`` (what datasets' ``Audio`` stores), binary, text (paths), or lists of
samples.
"""

from __future__ import annotations

import difflib
import functools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .._core import native
from .._core.output import listed
from .._core.settings import SAMPLING_RATE
from ..errors import InvalidArgumentError

if TYPE_CHECKING:
    import pyarrow as pa

_WHAT = {"audio": "audio", "text": "transcripts"}
_FIELDS = {"bytes": "bytes", "path": "paths"}  # of the struct, and of the request
_STRUCT = {"bytes", "array"}  # fields of structs that hold audio
_STORED = ("string", "large_string", "string_view", "binary", "large_binary", "binary_view")


@functools.cache
def audio_columns() -> tuple[str, ...]:
    """The usual names of a column with audio or paths, the preferred ones first."""
    return tuple(native.call("library.info")["audio_columns"])


@functools.cache
def text_columns() -> tuple[str, ...]:
    """The usual names of a column with transcripts, the preferred ones first."""
    return tuple(native.call("library.info")["text_columns"])


def usual_columns(columns: Iterable[str], usual: Iterable[str]) -> list[str]:
    """The ``columns`` with usual names, in the order of ``usual``."""
    there = list(columns)
    lower = {str(name).lower(): name for name in reversed(there)}
    return [name if name in there else lower[name] for name in usual if name in lower]


def audio_key(row: object) -> str | None:
    """The key of a row's audio; None of what is a clip itself, as a dictionary of samples or of bytes is.

    Raises ``InvalidArgumentError`` for a row that has none.
    """
    if not isinstance(row, Mapping) or "array" in row or "bytes" in row:
        return None
    for name in usual_columns(row, ("audio", *audio_columns(), "waveform")):
        return name
    raise InvalidArgumentError(f"a row of {listed(row)} has no audio", 'rows need "audio"')


def find_column(columns: Sequence[str], kind: str, wanted: str | None, first: Iterable[str] = ()) -> str:
    """The column of ``kind`` ``"audio"`` or ``"text"``: the one that is ``wanted``, or one with a usual name.

    ``first`` are columns that are certainly it, as those marked as audio. Raises ``InvalidArgumentError`` with the
    column that was probably meant and those that there are.
    """
    usual = audio_columns() if kind == "audio" else text_columns()
    if wanted is not None:
        if wanted in columns:
            return wanted
        raise _unknown(columns, kind, f"no column {wanted!r}", [*_near(wanted, columns), *first])
    for name in (*first, *usual_columns(columns, usual)):
        return name
    near = [name for similar in usual for name in _near(similar, columns)]
    raise _unknown(columns, kind, f"no column of a usual name with the {_WHAT[kind]}", near)


def _near(wanted: str, columns: Sequence[str]) -> list[str]:
    """Columns with a similar name, the nearest first, whatever their case."""
    lower = {name.lower(): name for name in columns}
    similar = difflib.get_close_matches(wanted.lower(), list(lower), n=1, cutoff=0.6)
    inside = [name for name in lower if wanted.lower() in name or name in wanted.lower()]
    return [lower[name] for name in (*similar, *inside)]


def _unknown(columns: Sequence[str], kind: str, problem: str, near: list[str]) -> InvalidArgumentError:
    there = ", ".join(columns) or "none"
    option = f"{kind}_column"
    if near:
        hint = f"did you mean {near[0]!r}? Pass {option}={near[0]!r} (--{kind}-column {near[0]})"
    else:
        hint = f"name it: {option}=… (--{kind}-column NAME)"
    return InvalidArgumentError(f"the data has {problem} (columns: {there})", hint)


def texts_of(column: pa.ChunkedArray | pa.Array) -> list[Any]:
    """The values of an Arrow column: texts, lists of labels, or None for what is missing.

    Numbers and dates become texts. A column of whole numbers in which some are missing is one of floats in pandas.
    """
    import pyarrow as pa

    kind, values = column.type, column.to_pylist()
    is_list = "list" in str(kind) and not pa.types.is_dictionary(kind)
    is_plain = pa.types.is_string(kind) or pa.types.is_large_string(kind) or is_list
    return values if is_plain else [text(value) for value in values]


def text(value: object) -> object:
    """A value as a text; lists and what is missing (None, NaN) as they are."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value) if isinstance(value, bool | int | float) or not hasattr(value, "__len__") else value


def arrow_request(
    columns: Iterable[tuple[pa.ChunkedArray, pa.ChunkedArray | None]], *, first: int = 0
) -> tuple[dict[str, object], list[object]]:
    """The ``arrow`` argument of a scan for (chunked column, indices or None) pairs, and what must be kept alive for it.

    ``indices`` are the rows to take of that column, an Arrow array of uint64; ``first`` is the number of the first row.
    """
    batches: list[dict[str, object]] = []
    alive: list[object] = []
    rows: list[tuple[int, int, pa.ChunkedArray | None]] = []  # of each column: start, length, indices
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
    request: dict[str, object] = {"batches": batches, "first": first, "rate": next(iter(rates), SAMPLING_RATE)}
    if any(indices is not None for _, _, indices in rows):
        wanted = _all_indices(rows)
        request |= {"indices": wanted.buffers()[1].address + 8 * wanted.offset, "count": len(wanted)}
        alive.append(wanted)
    return request, alive


def _all_indices(rows: list[tuple[int, int, pa.ChunkedArray | None]]) -> pa.Array:
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


def _batch(chunk: pa.Array, rates: set[int]) -> tuple[dict[str, object], object]:
    """One chunk, and the arrays that its addresses belong to."""
    import pyarrow as pa

    chunk = _wide(chunk)
    batch: dict[str, object] = {"rows": len(chunk)}
    if not pa.types.is_struct(chunk.type):
        kinds = {"large_string": "paths", "large_binary": "bytes"}
        return batch | {kinds.get(str(chunk.type), "lengths"): _buffers(chunk)}, chunk
    names = [field.name for field in chunk.type]
    fields = {name: _wide(chunk.field(name)) for name in ("bytes", "path", "array") if name in names}
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


def _wide(array: pa.Array) -> pa.Array:
    """A struct, or texts, bytes or lists with offsets of 64 bits; their values are not copied."""
    import pyarrow as pa

    if isinstance(array, pa.ExtensionArray):
        return _wide(array.storage)
    if pa.types.is_dictionary(array.type):
        return _wide(array.dictionary_decode())
    name = str(array.type).split("<")[0]
    if name == "struct":
        return array
    if "list" in name:
        return array.cast(pa.large_list(array.type.value_type))
    if "binary" in name or "string" in name or name == "null":
        return array.cast(pa.large_binary() if "binary" in name else pa.large_string())
    raise InvalidArgumentError(
        f"cannot read audio from a column of the type {array.type}", "store encoded bytes, paths, or lists of samples"
    )


def _buffers(array: pa.Array) -> dict[str, int]:
    """The addresses of an array of ``_wide`` that is no struct and not empty."""
    buffers = array.buffers()
    column = {"offsets": buffers[1].address, "width": 64, "from": array.offset}
    if buffers[0] is not None and array.null_count:
        column["valid"] = buffers[0].address
    if "list" not in str(array.type) and buffers[2] is not None and buffers[2].size:
        column |= {"data": buffers[2].address, "size": buffers[2].size}
    return column


def is_audio(schema: pa.Schema) -> bool:
    """Whether a table has a column with audio."""
    try:
        return bool(audio_column(schema))
    except InvalidArgumentError:
        return False


def audio_column(schema: pa.Schema) -> str:
    """The column to measure: marked as ``Audio`` by datasets, or ``input_values``, or known by its type and name."""
    described = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
    for name, feature in (described.get("info", {}).get("features") or {}).items():
        if isinstance(feature, dict) and feature.get("_type") == "Audio" and name in schema.names:
            return str(name)
    # Without datasets' description every usual name is taken, and the type is checked when it is read.
    stored = [e.name for e in schema if not described or e.name == "input_values" or _holds_audio(e.type)]
    structs = [entry.name for entry in schema if _STRUCT & _fields(entry.type)]
    named = usual_columns(stored, ("input_values", *audio_columns(), "bytes", "flac", "mp3"))
    for name in (*named[: named[:1] == ["input_values"]], *structs, *named):
        return str(name)
    texts = usual_columns(stored, text_columns())
    unusual = next((column for column in stored if column not in texts), audio_columns()[0])
    raise InvalidArgumentError(
        f"the dataset has no Audio column (columns: {listed(schema.names or ['unknown'])})",
        "store paths or a struct of bytes and path in one of " + ", ".join(audio_columns()) + ", or mark it: "
        f'dataset.cast_column("{unusual}", datasets.Audio(decode=False)); of rows that only your collator '
        "understands: create_optimal_config(dataset, model, collator=collator)",
    )


def _holds_audio(kind: pa.DataType) -> bool:
    """Whether a column of this type may hold paths or encoded bytes."""
    name = str(kind.value_type if hasattr(kind, "index_type") else kind)
    return bool((_STRUCT | {"path"}) & _fields(kind)) or name in _STORED


def _fields(kind: pa.DataType) -> set[str]:
    """The fields of a struct."""
    import pyarrow.types as kinds

    return {entry.name for entry in kind} if kinds.is_struct(kind) else set()


def axes_of_type(kind: pa.DataType) -> int:
    """The axes of a column's values: of lists of lists, or of an array."""
    if hasattr(kind, "shape"):  # datasets' Array2D and the like
        return len(kind.shape)
    return 1 + axes_of_type(kind.value_type) if "list" in str(kind).split("<")[0] else 0


def text_column(names: Iterable[str], wanted: str | None) -> str:
    """The column of the transcripts: ``wanted``, or the first with a usual name, with ``labels`` last."""
    there = list(names)
    for name in [wanted] * (wanted in there) if wanted else usual_columns(there, (*text_columns(), "labels")):
        return str(name)
    missing = f"no column {wanted!r}" if wanted else "no column with texts"
    raise InvalidArgumentError(f"the dataset has {missing} (columns: {', '.join(there)})", "name it: text=…")
