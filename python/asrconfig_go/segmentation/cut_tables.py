"""Pieces as rows of a ``datasets.Dataset``. Audio is not copied: rows name the file, or one written once from bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from .._base.files import cache_folder, write_whole
from ..data.column_names import text_columns, usual_columns
from ..data.hf_sources import audio_column, undecoded_columns
from ..loading.clip_ranges import named_range
from .cut_rules import Piece
from .segments import SEGMENT_COLUMNS

_LENGTHS = ("length", "duration", "duration_s", "seconds", "num_samples", "n_samples", "input_length")
_PREPARED = ("labels", "input_values", "input_features")


def table_problem(dataset: Any) -> str:
    """The reason why the clips of a table cannot be cut, or ""."""
    import pyarrow as pa

    if any(name in dataset.column_names for name in _PREPARED):
        return "their labels or inputs are made already: select before that"
    kind = dataset.data.table.schema.field(audio_column(dataset)).type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return ""
    if pa.types.is_struct(kind) and "path" in [field.name for field in kind] and "array" not in str(kind):
        return ""
    return f"the column of the audio is a {kind}, which cannot name a piece of a file"


def table_with_pieces(
    dataset: Any, seconds: Sequence[float], rows: Sequence[int], cuts: Mapping[int, list[Piece]]
) -> Any:
    """The rows ``kept`` in order, those in ``cuts`` as their pieces, with the format that ``dataset`` has."""
    from datasets import concatenate_datasets

    uncut = [row for row in rows if row not in cuts]
    pieces = _pieces(dataset, seconds, [(row, piece) for row in rows for piece in cuts.get(row, ())])
    combined = concatenate_datasets([dataset.with_format(None).select(uncut), pieces])
    order: list[int] = []
    next_whole, next_piece = 0, len(uncut)
    for row in rows:
        if row in cuts:
            order += range(next_piece, next_piece + len(cuts[row]))
            next_piece += len(cuts[row])
        else:
            order.append(next_whole)
            next_whole += 1
    layout = dict(dataset.format)
    columns = layout["columns"] if layout["type"] else None
    every, options = layout["output_all_columns"], layout["format_kwargs"]
    return combined.select(order).with_format(layout["type"], columns, every, **options)


def _scaled(values: Sequence[Any], shares: Sequence[float]) -> list[Any]:
    """Lengths of pieces that are ``shares`` of clips of these lengths, in any unit."""
    new = [None if value is None else value * share for value, share in zip(values, shares, strict=True)]
    integers = all(isinstance(value, int | None) for value in values)
    return [None if value is None else round(value) for value in new] if integers else new


def _pieces(dataset: Any, seconds: Sequence[float], rows: list[tuple[int, Piece]]) -> Any:
    import pyarrow as pa
    from datasets import Dataset
    from datasets.table import InMemoryTable

    schema, audio = dataset.data.table.schema, audio_column(dataset)
    text = next(iter(usual_columns(schema.names, text_columns())), None)
    shares = [(piece.end - piece.start) / seconds[row] for row, piece in rows]
    columns = []
    for field in schema:
        if field.name == audio:
            column = pa.array(_audio(dataset, audio, rows, pa.types.is_struct(field.type)), field.type)
        elif field.name == text:
            column = pa.array([piece.text for _, piece in rows], field.type)
        elif field.name in SEGMENT_COLUMNS:
            column = pa.nulls(len(rows), field.type)
        else:
            values = dataset.select_columns([field.name]).select([row for row, _ in rows]).with_format("arrow")[:]
            column = values.column(field.name).combine_chunks()
            if field.name in _LENGTHS:
                column = pa.array(_scaled(column.to_pylist(), shares), field.type)
        columns.append(column)
    table = pa.Table.from_arrays(columns, schema=schema.remove_metadata())
    return Dataset(InMemoryTable(table), info=dataset.info.copy(), split=dataset.split)


def _audio(dataset: Any, column: str, rows: list[tuple[int, Piece]], struct: bool) -> list[Any]:
    names: dict[int, str] = {}
    undecoded = undecoded_columns(dataset.with_format(None).select_columns([column]))
    for row, _ in rows:
        if row not in names:
            names[row] = _file_of(undecoded[row][column])
    paths = [named_range(names[row], piece.start, piece.end) for row, piece in rows]
    return [{"bytes": None, "path": path} for path in paths] if struct else paths


def _file_of(audio: Any) -> str:
    """The path of a recording; one that is embedded is written to the cache, once."""
    if isinstance(audio, str):
        return audio
    data, path = audio.get("bytes"), audio.get("path") or ""
    if data is None:
        return str(path)
    name = hashlib.blake2b(data, digest_size=16).hexdigest()
    file = cache_folder("recordings") / f"{name}{PurePath(path).suffix}"
    if not file.is_file():
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, data)
    return str(file)
