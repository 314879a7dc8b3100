"""Clips of a dataset, read one at a time as a DataLoader worker reads them."""

from __future__ import annotations

import importlib.util
import io
import os
import random
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from .._base import native
from .._base.defaults import SAMPLING_RATE
from .._base.errors import EmptyDatasetError, UnsupportedError
from .._base.files import user_path
from ..data.arrow_columns import audio_column as arrow_audio_column
from ..data.clips import Clip
from ..data.hf_sources import audio_column, undecoded
from ..data.parquet_pages import row_group
from ..data.parquet_sources import frame_table, parquet_files, read_arrow_file, read_saved
from ..data.pieces import is_array, kind
from ..data.scan import scan_audio
from .stored_audio import cannot_decode

_SAMPLE = 512  # clips at most; a second is enough for fewer
_LONGEST_S = 300.0  # read of one file
_MODELS_OWN = ("input_values", "input_features")


@dataclass(frozen=True)
class Reading:
    """A clip that was read. ``audio`` is None where the dataset has made the model's input of it."""

    audio: Any
    sampling_rate: int
    """Of ``audio``; ``stored_rate`` is the file's, which a dataset may have resampled."""
    seconds: float
    size_bytes: int
    codec: str
    stored_rate: int


@dataclass(frozen=True)
class LoaderItems:
    """The sample. ``items`` gives it again, each clip as a function that reads it."""

    items: Callable[[], Iterator[Callable[[], Reading]]]
    how: str
    notes: tuple[str, ...] = ()
    in_memory: bool = False


def loader_items(
    dataset: Any, *, sampling_rate: int, seed: int, row_seconds: Callable[[Any], float] | None = None
) -> LoaderItems:
    """A random sample of ``dataset`` (see ``measure_loader``); shards are read from their beginning, as they are."""
    drawn = random.Random(seed)
    if isinstance(dataset, dict) and dataset and all(hasattr(split, "column_names") for split in dataset.values()):
        dataset = dataset.get("train", next(iter(dataset.values())))
    if row_seconds is not None and hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__"):
        return _prepared(dataset, drawn, row_seconds)
    if isinstance(dataset, str | os.PathLike):
        dataset = _opened(user_path(dataset, "dataset"), dataset)
    if hasattr(dataset, "column_names") and hasattr(dataset, "features"):
        return _hf_rows(dataset, drawn)
    if hasattr(dataset, "columns") and hasattr(dataset, "iloc"):
        dataset = frame_table(dataset)
    if hasattr(dataset, "column_names") and hasattr(dataset, "schema"):
        return _table_rows(dataset, drawn)
    if isinstance(dataset, _Shards):
        return _shard(dataset.path)
    if isinstance(dataset, str | os.PathLike) or _are_paths(dataset):
        return _files(dataset, seed)
    if hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__") and not isinstance(dataset, bytes | dict):
        return _own(dataset, sampling_rate, drawn)
    raise UnsupportedError(
        f"the loading of {kind(dataset)} cannot be measured without reading it from its beginning",
        "pass files, or a dataset with a length; or assume a rate: loader_rate=",
    )


@dataclass(frozen=True)
class _Shards:
    path: Path


def _opened(path: Path, given: Any) -> Any:
    """A path, or what is in it: a saved dataset, a table, shards."""
    name = path.name.lower()
    if path.is_dir():
        saved = read_saved(path)
        files = [] if saved is not None else parquet_files(path)
        return saved if saved is not None else _parquet(files[0]) if files else given
    if path.is_file() and name.endswith(".parquet"):
        return _parquet(path)
    if path.is_file() and name.endswith(".arrow"):
        read_arrow_file(path)  # its errors
        return _arrow(path)
    if path.is_file() and ".tar" in name:
        return _Shards(path)
    return given


def _are_paths(dataset: Any) -> bool:
    return isinstance(dataset, list | tuple) and all(isinstance(item, str | os.PathLike) for item in dataset)


# Hugging Face datasets.


def _hf_rows(dataset: Any, drawn: random.Random) -> LoaderItems:
    if not hasattr(dataset, "__len__"):
        raise UnsupportedError(
            "the loading of a streamed dataset is not measured: its files may have to be downloaded",
            "load it without streaming, or assume a rate: loader_rate=",
        )
    if not len(dataset):
        raise EmptyDatasetError("the dataset has no rows", "check the split and the filters applied to it")
    column, rows = audio_column(dataset), drawn.sample(range(len(dataset)), min(_SAMPLE, len(dataset)))
    # Lengths, codecs and sizes from the headers: what a transform makes of a clip need not tell.
    clips = scan_audio(dataset.select(rows), cache=False, progress=False, allow_empty=True).clips
    how, notes = "the dataset's own __getitem__", list[str]()
    if getattr(dataset.features[column], "decode", False) and (why := cannot_decode()):
        dataset = undecoded(dataset, column)
        how, notes = "soundfile", [f"datasets cannot decode audio here: {why}"]
    sample = list(zip(rows, clips, strict=True))
    return LoaderItems(lambda: (partial(_hf_row, dataset, column, *each) for each in sample), how, tuple(notes))


def _hf_row(dataset: Any, column: str, row: int, clip: Clip) -> Reading:
    item = dataset[row]
    if clip.duration_s is None:
        raise ValueError(clip.error)
    audio, rate = None, clip.sample_rate
    if column in item and not set(_MODELS_OWN) & set(item):
        audio, rate = _decoded(item[column], clip.sample_rate)
    return Reading(audio, rate, clip.duration_s, clip.size_bytes, clip.codec, clip.sample_rate)


def _decoded(value: Any, rate: int) -> tuple[Any, int]:
    """The samples of what a row holds: a decoder, decoded audio, encoded bytes, a path, or samples themselves."""
    if hasattr(value, "get_all_samples"):
        samples = value.get_all_samples()
        return samples.data.numpy().mean(0), int(samples.sample_rate)
    if isinstance(value, dict) and value.get("array") is not None:
        return value["array"], int(value.get("sampling_rate") or rate)
    if isinstance(value, dict):
        value = value["path"] if value.get("bytes") is None else value["bytes"]
    if isinstance(value, bytes):
        return _by_soundfile(io.BytesIO(value), None)
    if isinstance(value, str | os.PathLike):
        return _by_soundfile(value, None)
    return value, rate


# Files.


def _files(dataset: Any, seed: int) -> LoaderItems:
    _need_soundfile()
    found = scan_audio(dataset, sample_size=_SAMPLE, seed=seed, progress=False, allow_empty=True)
    clips = list(found.clips)
    if not clips:
        raise EmptyDatasetError("there is not audio file to measure", "check the folder or the list")
    shard = next((parent for parent in Path(clips[0].path).parents if parent.is_file()), None)
    if shard is not None:
        return _shard(shard)
    random.Random(seed).shuffle(clips)
    return LoaderItems(lambda: (partial(_file, clip) for clip in clips), "soundfile")


def _file(clip: Clip) -> Reading:
    audio, rate = _by_soundfile(clip.path, clip.duration_s)
    return Reading(audio, rate, len(audio) / rate, clip.size_bytes, clip.codec or _suffix(clip.path), rate)


def _by_soundfile(source: Any, most_s: float | None) -> tuple[Any, int]:
    """The samples of one channel; of a long file, its first five minutes."""
    import soundfile

    with soundfile.SoundFile(source) as file:
        most = _LONGEST_S if most_s is None else min(_LONGEST_S, most_s)
        audio = file.read(int(most * file.samplerate) + 1, dtype="float32", always_2d=True)
        if not len(audio):
            raise ValueError("it holds no audio")
        return audio.mean(1) if audio.shape[1] > 1 else audio[:, 0], int(file.samplerate)


def _suffix(name: str) -> str:
    return Path(name).suffix.lstrip(".") or "bytes"


def _need_soundfile() -> None:
    if importlib.util.find_spec("soundfile") is None:
        raise UnsupportedError("decoding files is measured with soundfile", "pip install soundfile")


def _shard(path: Path) -> LoaderItems:
    _need_soundfile()
    return LoaderItems(partial(_shard_items, path), f"tarfile and soundfile, from the beginning of {path.name}")


def _shard_items(path: Path) -> Iterator[Callable[[], Reading]]:
    audio = tuple(native.call("library.info")["audio_extensions"])
    with tarfile.open(path, "r|*") as shard:
        for number, member in enumerate(m for m in shard if m.isfile() and m.name.lower().endswith(audio)):
            if number == _SAMPLE:
                return
            yield partial(_member, shard, member)


def _member(shard: tarfile.TarFile, member: tarfile.TarInfo) -> Reading:
    file = shard.extractfile(member)
    data = file.read() if file is not None else b""
    return _of_bytes(data, member.name)


def _of_bytes(data: bytes, name: str) -> Reading:
    audio, rate = _by_soundfile(io.BytesIO(data), None)
    return Reading(audio, rate, len(audio) / rate, len(data), _suffix(name), rate)


# Tables.


def _parquet(path: Path) -> Any:
    """The first row group of a file: some hundred clips."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pq.ParquetFile(path, memory_map=True) as file:
        column = arrow_audio_column(file.schema_arrow)
        if not file.num_row_groups:
            raise EmptyDatasetError(f"there are no rows in {path}", "check how it was written")
        return pa.Table.from_batches(row_group(path, file, 0, column, _SAMPLE))


def _arrow(path: Path) -> Any:
    from datasets import Dataset

    return Dataset.from_file(str(path))


def _table_rows(table: Any, drawn: random.Random) -> LoaderItems:
    _need_soundfile()
    if not table.num_rows:
        raise EmptyDatasetError("the table has no rows", "check how it was made")
    column = table.column(arrow_audio_column(table.schema))
    rows = drawn.sample(range(table.num_rows), min(_SAMPLE, table.num_rows))
    return LoaderItems(lambda: (partial(_table_row, column, row) for row in rows), "pyarrow and soundfile")


def _table_row(column: Any, row: int) -> Reading:
    value = column[row].as_py()
    audio, rate = _decoded(value, SAMPLING_RATE)
    size, name = 0, value if isinstance(value, str) else ""
    if isinstance(value, dict):
        size, name = len(value.get("bytes") or b""), value.get("path") or ""
    return Reading(audio, rate, len(audio) / rate, size, _suffix(name), rate)


# Rows that hold a model's input.


def _prepared(dataset: Any, drawn: random.Random, row_seconds: Callable[[Any], float]) -> LoaderItems:
    rows = drawn.sample(range(len(dataset)), min(_SAMPLE, len(dataset)))
    return LoaderItems(
        lambda: (partial(_prepared_row, dataset, row, row_seconds) for row in rows), "the dataset's own __getitem__"
    )


def _prepared_row(dataset: Any, row: int, row_seconds: Callable[[Any], float]) -> Reading:
    return Reading(None, SAMPLING_RATE, row_seconds(dataset[row]), 0, "prepared", SAMPLING_RATE)


# Dataset of your own, and arrays.


def _own(dataset: Any, sampling_rate: int, drawn: random.Random) -> LoaderItems:
    if not len(dataset):
        raise EmptyDatasetError("the dataset is empty", "pass at least one clip")
    rows = drawn.sample(range(len(dataset)), min(_SAMPLE, len(dataset)))
    in_memory = isinstance(dataset, list | tuple) and _is_decoded(dataset[rows[0]])
    how = "nothing: arrays in memory" if in_memory else "the dataset's own __getitem__"
    return LoaderItems(
        lambda: (partial(_own_row, dataset, row, sampling_rate) for row in rows), how, in_memory=in_memory
    )


def _is_decoded(item: Any) -> bool:
    return is_array(item) or (isinstance(item, dict) and bool({"array", "input_values"} & set(item)))


def _own_row(dataset: Any, row: int, sampling_rate: int) -> Reading:
    item = dataset[row]
    if isinstance(item, dict) and "input_values" in item:
        return Reading(None, sampling_rate, _length(item["input_values"]) / sampling_rate, 0, "prepared", sampling_rate)
    value = item
    if isinstance(item, dict) and "array" not in item:
        value = item.get("audio", item.get("speech", item.get("waveform")))
    rate = sampling_rate
    if isinstance(item, tuple) and len(item) > 1 and isinstance(item[1], int):
        value, rate = item[:2]  # as torchaudio's datasets give it
    audio, rate = _decoded(value, rate)
    if not is_array(audio) and not isinstance(audio, list):
        raise TypeError(f"how long {kind(item)} lasts is not known: give input_values, an array, or (waveform, rate)")
    return Reading(audio, rate, _length(audio) / rate, 0, "array", rate)


def _length(audio: Any) -> int:
    return int(audio.shape[-1]) if is_array(audio) else len(audio)


@dataclass
class Resampler:
    """Brings clips to one rate by what is installed: soxr or scipy."""

    rate: int
    notes: tuple[str, ...] = ()
    _known: Callable[[Any, int, int], Any] | None = field(default=None, repr=False)

    def bring(self, audio: Any, rate: int) -> Any:
        """The clip at the rate; as it is where nothing can resample it, which is noted."""
        if self._known is None:
            from .resampling import find_resampler

            name, found = find_resampler()
            self._known = found or (lambda audio, old, new: audio)
            self.notes = (f"resampled by {name}" if name else "neither soxr nor scipy: resampling is not included",)
        return self._known(audio, rate, self.rate)
