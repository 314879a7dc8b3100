"""Tables as input of a scan, without decoding: Hugging Face datasets and streams, Parquet, Arrow, pandas.

Parquet is read some rows at a time, so that memory stays bounded however large the file is.
"""

from __future__ import annotations

import bisect
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._core.files import from_storage
from .._core.output import listed
from .._core.requirements import imported
from ..errors import AsrConfigError, CorruptFileError, EmptyDatasetError
from .columns import arrow_request, audio_column, axes_of_type, is_audio, text, text_column, texts_of
from .scan_rows import Piece, PreparedRows, ScanInput, Text, input_column, stored_piece
from .source import EVALUATION, TRAIN

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from datasets import Dataset, DatasetDict, IterableDataset

SPLIT = "split"  # the column of manifests and tables with the split of each row
STREAM_SAMPLE = 200  # clips read of a streamed dataset, whose files are remote
_SHARDS = 10  # that they are read from: opening one may take seconds
_ROWS = 256  # rows read at once: some 25 MB of speech
_BATCH = 64 << 20  # bytes of rows read at once, where clips are long; some batches are on their way at any time


def read_hf_dataset(dataset: Dataset, prepared: PreparedRows) -> ScanInput:
    """A ``datasets.Dataset`` with an ``Audio`` or a path column, or with a model's input."""
    schema = schema_of(dataset)
    name = prepared_column(schema)
    if len(dataset) and name is not None:
        return prepared.of_column(dataset, stored_column(dataset, name), name, axes_of_type(schema.field(name).type))
    if len(dataset) and prepared.examples is not None and not is_audio(schema):
        return prepared.of_examples(dataset)
    return _tables([dataset], f"dataset of {len(dataset)} rows, column {audio_column(schema)!r}")


def schema_of(dataset: Dataset | IterableDataset) -> pa.Schema:
    """The Arrow schema of a dataset or a stream, empty where it is not known."""
    import pyarrow as pa

    return pa.schema([]) if not dataset.features else dataset.features.arrow_schema


def prepared_column(schema: pa.Schema) -> str | None:
    """The column that is a model's input and no list of samples, which is measured as audio."""
    if not is_audio(schema):
        return input_column(schema.names)
    column = audio_column(schema)
    return column if column == "input_values" and axes_of_type(schema.field(column).type) > 1 else None


def read_hf_splits(splits: Mapping[str, Dataset], prepared: PreparedRows) -> ScanInput:
    """A ``DatasetDict``: its split ``train``, or all splits if there is none."""
    if "train" in splits:
        source = read_hf_dataset(splits["train"], prepared)
        source.label = source.label.replace("dataset", "split 'train'", 1)
        if source.request is not None:
            source.request["source"] = source.label
        return source
    sizes = listed(f"{name} {len(split)}" for name, split in splits.items())
    return _tables(list(splits.values()), f"dataset of {sizes} rows")


def _tables(datasets: Sequence[Dataset], label: str) -> ScanInput:
    rows = sum(map(len, datasets))
    if not rows:
        raise EmptyDatasetError("the dataset has no rows", "check the split and the filters applied to it")
    columns = [stored_column(dataset, audio_column(schema_of(dataset))) for dataset in datasets]
    request, alive = arrow_request(columns)

    def texts(column: str | None) -> list[Text]:
        named = ((dataset, text_column(dataset.column_names, column)) for dataset in datasets)
        return [text for dataset, name in named for text in dataset_texts(dataset, name)]

    return ScanInput({"arrow": request, "source": label}, label=label, total=rows, alive=alive, texts=texts)


def stored_column(dataset: Dataset, name: str) -> tuple[pa.ChunkedArray, pa.ChunkedArray | None]:
    """A column as the dataset's table stores it, undecoded, and the dataset's rows of it, None for all."""
    indices = dataset._indices  # what select and shuffle leave instead of moving rows; there is no public name for it
    return dataset.data.table.column(name), None if indices is None else indices.table.column(0)


def dataset_texts(dataset: Dataset, name: str) -> list[Text]:
    """The texts of a column of a ``datasets.Dataset``, in the rows' order; class labels by their names."""
    values = texts_of(dataset.select_columns([name]).with_format("arrow")[:].column(name))
    names = getattr(dataset.features[name], "names", None)
    return values if names is None else [None if value is None else names[int(value)] for value in values]


def read_stream(dataset: IterableDataset, prepared: PreparedRows, limit: int, seed: int) -> ScanInput:
    """The first rows of some shards: sampling a stream at random would read all of it."""
    from .hf_datasets import stored

    dataset = resolved(dataset)
    split = (getattr(dataset.info, "splits", None) or {}).get(str(dataset.split))
    population = None if split is None else split.num_examples
    schema, undecoded, shards = schema_of(dataset), stored(dataset), list[int]()
    sampled, name = population is None or limit < population, prepared_column(schema)
    if sampled and _shards(dataset) > 1 and getattr(dataset, "_distributed", None) is None:
        where = f"rows of a stream of {_shards(dataset)} shards"
        rows = _first_rows(undecoded, limit, seed, shards)
    else:
        where, rows = "first rows of a stream", islice(undecoded, limit)
    if name is not None:
        return prepared.of_stream(rows, name, limit, population, where, shards)
    column = audio_column(schema)

    def pieces() -> Iterator[Piece]:
        for number, row in enumerate(rows):
            yield stored_piece([(number, row[column])])

    total = limit if population is None else min(limit, population)
    return ScanInput(None, pieces, f"{where}, column {column!r}", total, population, sampled, shards)


def _first_rows(dataset: IterableDataset, limit: int, seed: int, shards: list[int]) -> Iterator[Mapping[str, Any]]:
    """A tenth of the rows from each of ten random shards, or more, so that no single one decides.

    The number of rows read from each is appended to ``shards``.
    """
    from datasets.distributed import split_dataset_by_node

    every = _shards(dataset)
    share = -(-limit // min(every, _SHARDS))
    for shard in random.Random(seed).sample(range(every), every):
        shards.append(0)
        for row in islice(split_dataset_by_node(dataset, shard, every), min(share, limit - sum(shards))):
            shards[-1] += 1
            yield row
        if sum(shards) == limit:
            return


def _shards(dataset: IterableDataset) -> int:
    return int(dataset.num_shards if hasattr(dataset, "num_shards") else dataset.n_shards)  # n_shards in datasets 3.0


def resolved(dataset: IterableDataset) -> IterableDataset:
    """The dataset with its features known, which may take reading its first rows."""
    try:
        return dataset._resolve_features() if dataset.features is None else dataset
    except StopIteration:
        raise no_rows() from None


def no_rows() -> EmptyDatasetError:
    """The error for a stream without rows."""
    return EmptyDatasetError("the stream has no rows", "check its files, its split and its filters")


def files_by_split(files: Iterable[Path]) -> dict[str, list[Path]]:
    """Files by the split that their names begin with, or that their folders are called; others are of ``"train"``."""
    splits: dict[str, list[Path]] = {}
    for file in files:
        begin = re.split(r"[-_.]", file.stem)[0]
        names = [part for part in (begin, file.parent.name) if part in (*TRAIN, *EVALUATION)]
        splits.setdefault(names[0] if names else "train", []).append(file)
    return splits


def read_parquet(files: list[Path], *, sample_size: int | None, seed: int, trained: bool) -> ScanInput:
    """Parquet files one behind the other; of a sample, only the row groups that it touches are read.

    With ``trained`` those of the split train, or its rows by a column ``split``, where there are any.
    """
    imported("pyarrow", f"reading {files[0]}")
    splits = files_by_split(files) if trained else {}
    files = next((splits[name] for name in TRAIN if name in splits), files)
    readers = ParquetFiles(files)
    rows: Sequence[int] = range(readers.starts[-1])
    if trained and len(splits) == 1:
        rows = readers.trained_rows()
    total = len(rows)
    if sample_size is not None and sample_size < len(rows):
        rows = sorted(random.Random(seed).sample(rows, sample_size))
    with readers.opened(readers.files[0]) as file:
        label = f"{_named(readers.files)}, column {audio_column(file.schema_arrow)!r}"
    pieces = partial(readers.pieces, rows)
    return ScanInput(None, pieces, label, len(rows), total, len(rows) < total, texts=readers.texts)


def _named(files: Sequence[Path]) -> str:
    return f"{files[0]} and {len(files) - 1} more" if len(files) > 1 else str(files[0])


class ParquetFiles:
    """The Parquet files that have rows, opened one at a time.

    Raises ``CorruptFileError`` for one that is damaged, ``EmptyDatasetError`` where none has rows.
    """

    def __init__(self, files: Sequence[Path]) -> None:
        self.files, self.starts = list[Path](), [0]  # of each file's rows among all
        for path in files:
            with self.opened(path) as file:
                if file.metadata.num_rows:
                    self.files.append(path)
                    self.starts.append(self.starts[-1] + file.metadata.num_rows)
        if not self.files:
            raise EmptyDatasetError(f"there are no rows in {_named(files)}", "check how it was written")

    def opened(self, path: Path) -> pq.ParquetFile:
        """One of the files."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            return from_storage(path, lambda: pq.ParquetFile(path, memory_map=True))
        except (OSError, pa.ArrowException) as error:
            raise CorruptFileError(
                f"{path} cannot be read as Parquet: {error}", "download or write it again"
            ) from error

    def pieces(self, wanted: Sequence[int]) -> Iterator[Piece]:
        """The audio of the wanted rows, which are in order."""
        for first, batch in self._batches(audio_column, wanted):
            rows = _within(wanted, first, first + len(batch))
            if len(rows) == len(batch):
                yield _piece(batch.column(0), first)
                continue
            for row in rows:
                yield _piece(batch.column(0).slice(row - first, 1), row)

    def trained_rows(self) -> Sequence[int]:
        """The rows whose column ``split`` is train or empty; all where there are none or no such column."""
        every = range(self.starts[-1])
        with self.opened(self.files[0]) as file:
            if SPLIT not in file.schema_arrow.names:
                return every
        batches = self._batches(lambda schema: SPLIT, every)
        splits = (text for _, batch in batches for text in texts_of(batch.column(0)))
        return [row for row, split in enumerate(splits) if not split or split in TRAIN] or every

    def texts(self, name: str | None) -> list[Text]:
        """The text of every row."""
        batches = self._batches(lambda schema: text_column(schema.names, name), range(self.starts[-1]))
        return [text for _, batch in batches for text in texts_of(batch.column(0))]

    def _batches(
        self, column_of: Callable[[pa.Schema], str], wanted: Sequence[int]
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Record batches of one column with the number of their first row, of the row groups with wanted rows."""
        import pyarrow as pa

        for path, first in zip(self.files, self.starts, strict=False):
            with self.opened(path) as file:
                column = column_of(file.schema_arrow)
                try:
                    for group in range(file.num_row_groups):
                        end = first + file.metadata.row_group(group).num_rows
                        for batch in row_group(file, group, column, _ROWS) if _within(wanted, first, end) else ():
                            yield first, batch
                            first += len(batch)
                        first = end
                except (OSError, pa.ArrowException) as error:
                    raise CorruptFileError(f"{path} cannot be read to its end: {error}", "write it again") from error


def row_group(file: pq.ParquetFile, group: int, column: str, limit: int) -> Iterator[pa.RecordBatch]:
    """Batches of one column of a row group: at most ``limit`` rows, fewer where the footer says they are large."""
    metadata = file.metadata.row_group(group)
    chunks = [metadata.column(i) for i in range(metadata.num_columns)]
    size = sum(c.total_uncompressed_size for c in chunks if c.path_in_schema.split(".", 1)[0] == column)
    rows = max(1, min(limit, _BATCH * metadata.num_rows // max(1, size)))
    return iter(file.iter_batches(rows, row_groups=[group], columns=[column], use_threads=False))


def _within(wanted: Sequence[int], start: int, end: int) -> Sequence[int]:
    """The wanted rows from ``start`` to before ``end``."""
    return wanted[bisect.bisect_left(wanted, start) : bisect.bisect_left(wanted, end)]


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
    pa = imported("pyarrow", "reading a DataFrame")
    try:
        return pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        mixed = {name: frame[name].map(text) for name in frame.columns if frame[name].dtype == object}
        return pa.Table.from_pandas(frame.assign(**mixed), preserve_index=False)


def read_arrow_file(path: Path) -> ScanInput:
    """An Arrow file or stream, as datasets keeps them, mapped into memory."""
    pa = imported("pyarrow", f"reading {path}")
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
    datasets = imported("datasets", f"reading {folder}, a saved dataset,")
    try:
        return from_storage(folder, lambda: datasets.load_from_disk(str(folder)))
    except (OSError, ValueError, KeyError) as error:
        if isinstance(error, AsrConfigError):
            raise
        raise CorruptFileError(f"{folder} cannot be read as a saved dataset: {error}", "save it again") from error
