"""What the scanner gets for each kind of dataset.

Folders, manifests, shards, paths and Arrow tables in memory are one request, which the library lists and measures by
itself; Parquet, arrays, prepared rows and streams are read here, piece by piece.
"""

from __future__ import annotations

import glob
import os
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .._core.files import user_path, utf8
from .._core.output import kind_of, listed
from ..errors import EmptyDatasetError, InvalidArgumentError, NotFoundError
from .scan_rows import Piece, PreparedRows, ScanInput, array_clip
from .source import CLIPS, TRAINED, Source, is_array, open_source
from .table_sources import (
    STREAM_SAMPLE,
    frame_table,
    read_arrow_file,
    read_hf_dataset,
    read_hf_splits,
    read_parquet,
    read_saved,
    read_stream,
    read_table,
)

_MANIFESTS = (".jsonl", ".json", ".ndjson", ".csv", ".tsv", ".txt", ".lst", ".list", ".scp")
_KALDI = ("segments", "utt2dur", "reco2dur")
SHARDS = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst")
_ACCEPTED = (
    "pass a folder, an audio file, a manifest (.jsonl, .csv, .tsv, .scp, …), tar shards, Parquet files, a list of "
    "paths, a datasets.Dataset with an Audio column, a list of 1-D arrays, or a list of "
    '{"array", "sampling_rate"}'
)


@dataclass(frozen=True)
class SourceReader:
    """Makes the input of a scan: of a sample of ``sample_size`` rows, of arrays at ``sampling_rate``.

    ``prepared`` measures rows that hold a model's input; ``trained`` is as of ``Source``.
    """

    sampling_rate: int = 0
    sample_size: int | None = None
    seed: int = 0
    prepared: PreparedRows = field(default_factory=PreparedRows)
    trained: bool = False

    def read(self, source: Source) -> ScanInput:
        """What to scan. Raises ``InvalidArgumentError`` with the accepted kinds for what is no dataset."""
        data: Any = source.data
        match source.kind:
            case "path":
                scan_input = self._path(os.fsdecode(data))
                if self.trained and scan_input.request is not None:
                    scan_input.request |= TRAINED
                return scan_input
            case "paths":
                return self._paths(data if set(map(type, data)) == {str} else [os.fsdecode(item) for item in data])
            case "address" | "stream":
                return read_stream(source.stream(), self.prepared, self.sample_size or STREAM_SAMPLE, self.seed)
            case "dataset":
                return read_hf_dataset(data, self.prepared)
            case "splits" | "mapping":
                return self._splits(source)
            case "table":
                return read_table(data, f"table of {data.num_rows} rows")
            case "frame":
                return read_table(frame_table(data), f"frame of {len(data)} rows")
            case "list" | "indexed" | "iterable":
                return self._rows(source)
        raise _refused(data)

    def _splits(self, source: Source) -> ScanInput:
        names = listed(map(repr, source.data))
        if source.kind == "splits" and not source.is_stream:
            return read_hf_splits(source.data, self.prepared)
        if source.kind == "splits" and "train" in source.parts:
            return self.read(source.train)
        raise InvalidArgumentError(
            f"the dataset is a dictionary of {names}{', streamed' if source.is_stream else ''}",
            f"pass one split, such as dataset[{next(iter(source.data), 'train')!r}]",
        )

    def _path(self, name: str) -> ScanInput:
        if name.startswith("pipe:"):
            return ScanInput({"shards": [name]})
        path = user_path(name, "dataset")
        if name == "demo" and not path.exists():
            path = CLIPS / "manifest.jsonl"
        if path.is_dir():
            saved = read_saved(path)
            return ScanInput({"folder": utf8(path)}) if saved is None else self.read(open_source(saved))
        if not path.exists():
            return self._pattern(name, str(path))
        plain = path.name.lower().removesuffix(".gz")
        if plain.endswith(_MANIFESTS) or plain in _KALDI:
            return ScanInput({"manifest": utf8(path)})
        if path.name.lower().endswith(SHARDS):
            return ScanInput({"shards": [utf8(path)]})
        if plain.endswith(".parquet"):
            return self.parquet([path])
        return read_arrow_file(path) if plain.endswith(".arrow") else ScanInput({"paths": [str(path)]})

    def _pattern(self, name: str, pattern: str) -> ScanInput:
        """Expands wildcards, or braces for tar shards; ``~`` is expanded in ``pattern``."""
        if set(name) & set("*?[{") and name.lower().endswith(SHARDS):
            return ScanInput({"shards": [pattern]})
        wild = bool(set(name) & set("*?["))
        paths = sorted(glob.glob(pattern, recursive=True)) if wild else []  # noqa: PTH207
        if not paths:
            raise NotFoundError(f"the dataset {name!r} does not exist", f"the working folder is {Path.cwd()}")
        return self._paths(paths, shards=False)

    def _paths(self, paths: Sequence[str], *, shards: bool = True) -> ScanInput:
        if shards and all(path.lower().endswith(SHARDS) for path in paths):
            return ScanInput({"shards": paths})
        if all(path.lower().endswith(".parquet") for path in paths):
            return self.parquet(paths)
        if all(path.lower().removesuffix(".gz").endswith(_MANIFESTS) for path in paths):
            raise InvalidArgumentError(f"cannot read {len(paths)} manifests at once: {listed(paths)}", "name one")
        return ScanInput({"paths": paths}, total=len(paths))

    def parquet(self, paths: Sequence[str | Path]) -> ScanInput:
        """Parquet files one behind the other."""
        return read_parquet(list(map(Path, paths)), sample_size=self.sample_size, seed=self.seed, trained=self.trained)

    def _rows(self, source: Source) -> ScanInput:
        """Rows that hold a model's input, or else arrays."""
        data = source.data
        if is_array(data) and len(data.shape) != 1:
            raise _refused(data)
        if source.has_rows and source.length and not _is_audio(data[0]):
            return self.prepared.of_rows(data, self.sample_size, self.seed)
        # Without __iter__, as a torch dataset, items end where an IndexError says so, and many never raise one.
        items = list(data) if hasattr(data, "__iter__") else [data[i] for i in range(len(data))]
        if not items:
            raise EmptyDatasetError("the dataset is an empty list", _ACCEPTED)
        if open_source(items).kind in ("paths", "address"):
            return self.read(open_source(items))
        rows = list(range(len(items)))
        if self.sample_size is not None and self.sample_size < len(items):
            rows = sorted(random.Random(self.seed).sample(rows, self.sample_size))
        piece = Piece({"rows": [array_clip(items[row], row, self.sampling_rate) for row in rows]})
        label, sampled = f"{len(items)} arrays", len(rows) < len(items)
        return ScanInput(None, lambda: iter((piece,)), label, len(rows), len(items), sampled)


def _is_audio(row: object) -> bool:
    """Whether a row is a path or audio, and no row of columns or of a custom dataset."""
    if isinstance(row, tuple):
        return all(isinstance(value, int | float) for value in row)
    return not isinstance(row, Mapping) or bool({"array", "sampling_rate"} & set(row))


def _refused(data: object) -> InvalidArgumentError:
    return InvalidArgumentError(f"cannot read a dataset from {kind_of(data)}", _ACCEPTED)
