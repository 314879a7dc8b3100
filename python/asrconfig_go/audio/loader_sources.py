"""Clips of a dataset, read one at a time as a DataLoader worker reads them."""

from __future__ import annotations

import glob
import random
import tarfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._core import native
from .._core.files import user_path
from .._core.output import kind_of
from .._core.requirements import need
from .._core.settings import SAMPLING_RATE
from .._core.stored_clip import StoredClip
from ..data.columns import audio_column, audio_key
from ..data.scan import scan_audio
from ..data.scan_result import Clip
from ..data.segments import named_range
from ..data.source import Source, is_array, open_source
from ..data.table_sources import ParquetFiles, frame_table, read_arrow_file, read_saved, row_group, schema_of
from ..errors import EmptyDatasetError, UnsupportedError
from .collators import cannot_decode
from .decoding import Array, decode_source, name_of

if TYPE_CHECKING:
    import pyarrow as pa
    from datasets import Dataset

_MAX_CLIPS = 512  # a second is enough for fewer
_LONGEST_S = 300.0  # read of one file
_MODELS_OWN = {"input_values", "input_features"}
_DECODING = ("measuring how fast files are decoded", "soundfile")
_GETITEM = "the dataset's own __getitem__"


@dataclass(frozen=True)
class Reading:
    """A clip that was read. ``audio`` is None where the dataset holds the model's input instead."""

    audio: Array | None
    sampling_rate: int
    """The rate of ``audio``; ``stored_rate`` is that of the file, which a dataset may have resampled."""
    seconds: float
    size_bytes: int
    codec: str
    stored_rate: int
    took_s: float = 0.0


@dataclass(frozen=True)
class LoaderItems:
    """The drawn sample. ``items`` returns each of its clips as a function that reads it."""

    items: Callable[[], Iterator[Callable[[], Reading]]]
    reader: str
    notes: tuple[str, ...] = ()
    in_memory: bool = False


def loader_items(
    source: Source, *, sampling_rate: int, seed: int, row_seconds: Callable[[object], float] | None = None
) -> LoaderItems:
    """A random sample of a dataset (see ``measure_loader``); shards are read from their beginning, as they are."""
    drawn = random.Random(seed)
    source = replace(source.train, scan=source.scan)
    if row_seconds is not None and source.has_rows:
        return _prepared(source.data, drawn, row_seconds)
    if source.kind == "path":
        source = _opened(source)
    match source.kind:
        case "dataset":
            return _hf_rows(source, drawn)
        case "stream":
            raise UnsupportedError(
                "the loading of a streamed dataset is not measured: its files may have to be downloaded",
                "load it without streaming, or assume a rate: loader_rate=",
            )
        case "table" | "frame":
            return _table_rows(source.data if source.kind == "table" else frame_table(source.data), drawn)
        case "path" | "paths":
            return _files(source, drawn, seed)
        case "list" | "indexed":
            return _own(source, sampling_rate, drawn)
    raise UnsupportedError(
        f"the loading of {kind_of(source.data)} cannot be measured without reading it from its beginning",
        "pass files, or a dataset with a length; or assume a rate: loader_rate=",
    )


def _opened(source: Source) -> Source:
    """The dataset behind a path: what was saved, an Arrow file, or the first rows of a Parquet file."""
    path = user_path(source.data, "dataset")
    if path.is_dir():
        saved = read_saved(path)
        return source if saved is None else replace(open_source(saved).train, scan=source.scan)
    if path.is_file() and path.suffix.lower() == ".parquet":
        return open_source(_parquet(path))
    if path.is_file() and path.suffix.lower() == ".arrow":
        from datasets import Dataset

        read_arrow_file(path)  # its errors
        return open_source(Dataset.from_file(str(path)))
    return source


def _hf_rows(source: Source, drawn: random.Random) -> LoaderItems:
    dataset: Dataset = source.data
    if not len(dataset):
        raise EmptyDatasetError("the dataset has no rows", "check the split and the filters applied to it")
    column, rows = audio_column(schema_of(dataset)), _sample(len(dataset), drawn)
    # Lengths, codecs and sizes come from the headers: the output of a transform may not have them.
    if source.scan is not None and len(source.scan) == len(dataset):
        clips = [source.scan.clips[row] for row in rows]
    else:
        clips = list(scan_audio(dataset.select(rows), cache=False, progress=False, allow_empty=True).clips)
    reader, notes = _GETITEM, list[str]()
    if column in source.decoded_columns() and (problem := cannot_decode()):
        dataset = source.undecoded()
        reader, notes = "soundfile", [f"datasets cannot decode audio here: {problem}"]
    sample = list(zip(rows, clips, strict=True))
    return LoaderItems(lambda: (partial(_hf_row, dataset, column, *pair) for pair in sample), reader, tuple(notes))


def _hf_row(dataset: Dataset, column: str, row: int, clip: Clip) -> Reading:
    item = dataset[row]
    if clip.duration_s is None:
        raise ValueError(clip.error)
    audio, rate = None, clip.sample_rate
    if column in item and not _MODELS_OWN & set(item):
        audio, rate, _ = decode_source(item[column], clip.path, clip.sample_rate)
    return Reading(audio, rate, clip.duration_s, clip.size_bytes, clip.codec, clip.sample_rate)


def _files(source: Source, drawn: random.Random, seed: int) -> LoaderItems:
    need(*_DECODING)
    path = Path(source.data) if source.kind == "path" else None
    if path is not None and ".tar" in path.name.lower() and user_path(path, "dataset").is_file():
        return _shard(user_path(path, "dataset"))
    scan = source.scan or scan_audio(source.data, sample_size=_MAX_CLIPS, seed=seed, progress=False, allow_empty=True)
    if not len(scan):
        raise EmptyDatasetError("there is no audio file to measure", "check the folder or the list")
    listed = open_source(scan)
    files = listed.data if listed.kind == "paths" else []
    if listed.kind == "path":  # of a file, a folder or a pattern
        files = sorted(glob.glob(str(user_path(listed.data, "dataset")), recursive=True))  # noqa: PTH207
    if files and str(files[0]).endswith(".parquet"):  # as those of a folder
        return _table_rows(_parquet(ParquetFiles(list(map(Path, files))).files[0]), drawn)
    clips = [scan.clips[row] for row in _sample(len(scan), drawn)]
    shard = next((parent for parent in Path(clips[0].path).parents if parent.is_file()), None)
    if shard is not None:
        return _shard(shard)
    return LoaderItems(lambda: (partial(_file, clip) for clip in clips), "soundfile")


def _file(clip: Clip) -> Reading:
    piece = named_range(clip.path, 0.0, min(_LONGEST_S, clip.duration_s or _LONGEST_S))
    return _decoded(piece, clip.size_bytes, clip.codec or _suffix(clip.path))


def _decoded(source: object, size_bytes: int, codec: str, rate: int = SAMPLING_RATE) -> Reading:
    audio, rate, _ = decode_source(source, name_of(source), rate)
    if not len(audio):
        raise ValueError("it holds no audio")
    return Reading(audio, rate, len(audio) / rate, size_bytes, codec, rate)


def _sample(count: int, drawn: random.Random) -> list[int]:
    return drawn.sample(range(count), min(_MAX_CLIPS, count))


def _suffix(name: str) -> str:
    return Path(name).suffix.lstrip(".") or "bytes"


def _shard(path: Path) -> LoaderItems:
    need(*_DECODING)
    return LoaderItems(partial(_shard_items, path), f"tarfile and soundfile, from the beginning of {path.name}")


def _shard_items(path: Path) -> Iterator[Callable[[], Reading]]:
    audio = tuple(native.call("library.info")["audio_extensions"])
    with tarfile.open(path, "r|*") as shard:
        for number, member in enumerate(m for m in shard if m.isfile() and m.name.lower().endswith(audio)):
            if number == _MAX_CLIPS:
                return
            yield partial(_member, shard, member)


def _member(shard: tarfile.TarFile, member: tarfile.TarInfo) -> Reading:
    file = shard.extractfile(member)
    data = file.read() if file is not None else b""
    return _decoded(data, len(data), _suffix(member.name))


def _parquet(path: Path) -> pa.Table:
    """The first row group of a file: some hundred clips."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pq.ParquetFile(path, memory_map=True) as file:
        column = audio_column(file.schema_arrow)
        return pa.Table.from_batches(row_group(file, 0, column, _MAX_CLIPS))


def _table_rows(table: pa.Table, drawn: random.Random) -> LoaderItems:
    need(*_DECODING)
    if not table.num_rows:
        raise EmptyDatasetError("the table has no rows", "check how it was made")
    column = table.column(audio_column(table.schema))
    rows = _sample(table.num_rows, drawn)
    return LoaderItems(lambda: (partial(_table_row, column, row) for row in rows), "pyarrow and soundfile")


def _table_row(column: pa.ChunkedArray, row: int) -> Reading:
    value = column[row].as_py()
    clip = StoredClip.of(value)
    return _decoded(value, len(clip.value) if clip.kind == "bytes" else 0, _suffix(clip.path))


def _prepared(dataset: Sequence[object], drawn: random.Random, row_seconds: Callable[[object], float]) -> LoaderItems:
    def read(row: int) -> Reading:
        return Reading(None, SAMPLING_RATE, row_seconds(dataset[row]), 0, "prepared", SAMPLING_RATE)

    rows = _sample(len(dataset), drawn)
    return LoaderItems(lambda: (partial(read, row) for row in rows), _GETITEM)


def _own(source: Source, sampling_rate: int, drawn: random.Random) -> LoaderItems:
    dataset = source.data
    if not len(dataset):
        raise EmptyDatasetError("the dataset is empty", "pass at least one clip")
    rows = _sample(len(dataset), drawn)
    first = dataset[rows[0]] if source.kind == "list" else None
    in_memory = is_array(first) or (isinstance(first, dict) and bool({"array", "input_values"} & set(first)))
    reader = "nothing: arrays in memory" if in_memory else _GETITEM
    return LoaderItems(lambda: (partial(_own_row, dataset, n, sampling_rate) for n in rows), reader, (), in_memory)


def _own_row(dataset: Sequence[Any], row: int, sampling_rate: int) -> Reading:
    item = dataset[row]
    if isinstance(item, dict) and "input_values" in item:
        return Reading(None, sampling_rate, _length(item["input_values"]) / sampling_rate, 0, "prepared", sampling_rate)
    name = audio_key(item)
    value, rate = item if name is None else item[name], sampling_rate
    if isinstance(item, tuple) and len(item) > 1 and isinstance(item[1], int):
        value, rate = item[:2]  # as in torchaudio's datasets
    return _decoded(value, 0, "array", rate)


def _length(audio: Any) -> int:
    return int(audio.shape[-1]) if is_array(audio) else len(audio)
