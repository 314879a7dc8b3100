"""Parquet and Arrow files and tables as sources.

Parquet is read some rows at a time, so that memory stays bounded however large the file is.
"""

from __future__ import annotations

import bisect
import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._core.storage import from_storage
from ..errors import AsrConfigError, CorruptFileError, EmptyDatasetError, InvalidArgumentError
from .columns import arrow_request, audio_column, text, text_column, texts_of
from .pieces import Piece, ScanInput, Text

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from datasets import Dataset, DatasetDict

_ROWS = 256  # rows read at once: some 25 MB of speech
_BATCH = 64 << 20  # bytes of rows read at once, where clips are long; some batches are on their way at any time


def read_parquet(files: list[Path], *, sample_size: int | None, seed: int) -> ScanInput:
    """Parquet files one behind the other; of a sample, only the row groups that it touches are read."""
    _need_pyarrow(str(files[0]))
    readers = _Files(files)
    rows = readers.starts[-1]
    if not rows:
        raise EmptyDatasetError(f"there are no rows in {files[0]}" + _more(files), "check how it was written")
    wanted = None
    if sample_size is not None and sample_size < rows:
        wanted = sorted(random.Random(seed).sample(range(rows), sample_size))
    label = f"{files[0]}{_more(files)}, column {readers.column(0)!r}"
    return ScanInput(
        None,
        lambda: readers.pieces(wanted),
        label,
        rows if wanted is None else len(wanted),
        rows,
        wanted is not None,
        texts=readers.texts,
    )


def _more(files: list[Path]) -> str:
    return f" and {len(files) - 1} more" if len(files) > 1 else ""


class _Files:
    """Parquet files, opened one at a time."""

    def __init__(self, files: list[Path]) -> None:
        self._files = files
        self.starts = [0]  # of each file's rows among all
        for number in range(len(files)):
            with self._open(number) as file:
                self.starts.append(self.starts[-1] + file.metadata.num_rows)

    def _open(self, number: int) -> pq.ParquetFile:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            path = self._files[number]
            return from_storage(path, lambda: pq.ParquetFile(path, memory_map=True))
        except (OSError, pa.ArrowException) as error:
            raise CorruptFileError(
                f"{self._files[number]} cannot be read as Parquet: {error}", "download or write it again"
            ) from error

    def column(self, number: int) -> str:
        with self._open(number) as file:
            return audio_column(file.schema_arrow)

    def pieces(self, wanted: list[int] | None) -> Iterator[Piece]:
        """The audio of the wanted rows, which are sorted, or of all."""
        for number in range(len(self._files)):
            with self._open(number) as file:
                for first, batch in self._batches(file, number, audio_column(file.schema_arrow), wanted):
                    if wanted is None:
                        yield _piece(batch.column(0), first)
                    for row in _within(wanted, first, first + len(batch)):
                        yield _piece(batch.column(0).slice(row, 1), first + row)

    def _batches(
        self, file: pq.ParquetFile, number: int, column: str, wanted: list[int] | None
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Record batches of one column with the number of their first row, of the row groups with wanted rows."""
        import pyarrow as pa

        first = self.starts[number]
        try:
            for group in range(file.num_row_groups):
                rows = file.metadata.row_group(group).num_rows
                if wanted is None or _within(wanted, first, first + rows):
                    at = first
                    for batch in row_group(file, group, column, _ROWS):
                        yield at, batch
                        at += len(batch)
                first += rows
        except (OSError, pa.ArrowException) as error:
            raise CorruptFileError(
                f"{self._files[number]} cannot be read to its end: {error}", "write it again"
            ) from error

    def texts(self, name: str | None) -> list[Text]:
        """The text of every row."""
        texts: list[Text] = []
        for number in range(len(self._files)):
            with self._open(number) as file:
                column = text_column(file.schema_arrow.names, name)
                for _, batch in self._batches(file, number, column, None):
                    texts += texts_of(batch.column(0))
        return texts


def row_group(file: pq.ParquetFile, group: int, column: str, limit: int) -> Iterator[pa.RecordBatch]:
    """Batches of one column of a row group: at most ``limit`` rows, fewer where the footer says they are large."""
    metadata = file.metadata.row_group(group)
    chunks = [metadata.column(i) for i in range(metadata.num_columns)]
    size = sum(c.total_uncompressed_size for c in chunks if c.path_in_schema.split(".", 1)[0] == column)
    rows = max(1, min(limit, _BATCH * metadata.num_rows // max(1, size)))
    return iter(file.iter_batches(rows, row_groups=[group], columns=[column], use_threads=False))


def _within(wanted: list[int] | None, start: int, end: int) -> list[int]:
    """The wanted rows from ``start`` to ``end``, counted from ``start``."""
    if wanted is None:
        return []
    return [row - start for row in wanted[bisect.bisect_left(wanted, start) : bisect.bisect_left(wanted, end)]]


def _piece(column: pa.Array, first: int) -> Piece:
    import pyarrow as pa

    request, alive = arrow_request([(pa.chunked_array([column]), None)], first=first)
    return Piece({"arrow": request}, alive=alive)


def read_table(table: pa.Table, label: str) -> ScanInput:
    """A ``pyarrow.Table``."""
    if not table.num_rows:
        raise EmptyDatasetError("the table has no rows", "check how it was made")
    column = audio_column(table.schema)
    request, alive = arrow_request([(table.column(column), None)])
    return ScanInput(
        {"arrow": request, "source": f"{label}, column {column!r}"},
        total=table.num_rows,
        alive=alive,
        texts=lambda name: texts_of(table.column(text_column(table.column_names, name))),
    )


def frame_table(frame: Any) -> pa.Table:
    """A ``pandas.DataFrame`` as a ``pyarrow.Table``; columns of texts and numbers are texts."""
    _need_pyarrow("a DataFrame")
    import pyarrow as pa

    try:
        return pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        mixed = {name: frame[name].map(text) for name in frame.columns if frame[name].dtype == object}
        return pa.Table.from_pandas(frame.assign(**mixed), preserve_index=False)


def _need_pyarrow(subject: str) -> None:
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise InvalidArgumentError(f"reading {subject} needs the package pyarrow", "pip install pyarrow") from None


def read_arrow_file(path: Path) -> ScanInput:
    """An Arrow file or stream, as datasets keeps them, mapped into memory."""
    _need_pyarrow(str(path))
    import pyarrow as pa

    try:
        try:
            table = pa.ipc.open_stream(pa.memory_map(str(path))).read_all()
        except pa.ArrowInvalid:
            table = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
    except (OSError, pa.ArrowException) as error:
        raise CorruptFileError(f"{path} cannot be read as Arrow: {error}", "write it again") from error
    return read_table(table, str(path))


def read_saved(folder: Path) -> Dataset | DatasetDict | None:
    """The dataset that ``save_to_disk`` wrote into a folder, None when it is no such folder."""
    if not any((folder / name).is_file() for name in ("state.json", "dataset_dict.json")):
        return None
    try:
        from datasets import load_from_disk
    except ImportError:
        raise InvalidArgumentError(
            f"{folder} is a saved dataset, and the package datasets is not installed", "pip install datasets"
        ) from None
    try:
        return from_storage(folder, lambda: load_from_disk(str(folder)))
    except (OSError, ValueError, KeyError) as error:
        if isinstance(error, AsrConfigError):
            raise
        raise CorruptFileError(f"{folder} cannot be read as a saved dataset: {error}", "save it again") from error
