"""What a dataset is, decided once: all other modules ask the ``Source`` that ``open_source`` returns."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from .._core.output import kind_of
from .._core.requirements import imported
from ..errors import InvalidArgumentError
from .scan_result import DatasetProfile, ScanResult

if TYPE_CHECKING:
    import datasets

SourceKind = Literal[
    "path", "paths", "address", "dataset", "stream", "splits", "mapping", "table", "frame", "list", "indexed",
    "iterable", "profile", "other",
]  # fmt: skip
CLIPS = Path(__file__).parent / "clips"
"""The folder of the demo's spoken digits, with their ``manifest.jsonl``."""
TRAIN = ("train", "training")
EVALUATION = ("validation", "valid", "dev", "eval", "evaluation", "test")
TRAINED = {"splits": TRAIN, "split_folders": (*TRAIN, *EVALUATION)}
"""In a request to the library: of files with splits, those to train on."""
_BUILDERS = {".parquet": "parquet", ".tar": "webdataset"}


@dataclass(frozen=True)
class Source:
    """A dataset as it was passed, and its ``kind``.

    Attributes:
        data: What was passed; of a scan's result what was scanned.
        kind: ``"path"`` of a file, a folder or a pattern; ``"paths"``, a list of them; ``"address"``, one or several
            that are streamed; ``"dataset"`` and ``"stream"`` of the package datasets, ``"splits"`` of them by name;
            ``"mapping"``, another dictionary; ``"table"`` of pyarrow, ``"frame"`` of pandas; ``"list"`` of rows or
            arrays; ``"indexed"``, rows by number, as of a torch dataset; ``"iterable"``; ``"profile"`` of a dataset
            that is not here; ``"other"``, none.
        scan: The result of a scan, if that was passed.
        trained: Of files with a split train, that alone is meant.
    """

    data: Any
    kind: SourceKind
    scan: ScanResult | None = None
    trained: bool = False

    @property
    def length(self) -> int | None:
        """How many rows or parts there are, None where that is not known."""
        return len(self.data) if hasattr(self.data, "__len__") else None

    @property
    def is_stream(self) -> bool:
        """Whether clips can only be read in sequence."""
        if self.kind in ("splits", "mapping"):
            return any(part.is_stream for part in self.parts.values())
        return self.kind in ("stream", "address") or (self.kind == "iterable" and self.length is None)

    @property
    def has_rows(self) -> bool:
        """Whether rows can be read by their numbers."""
        return self.kind in ("dataset", "list", "indexed", "paths")

    @property
    def parts(self) -> dict[str, Source]:
        """The splits by name; of any other dataset itself, as ``""``."""
        if self.kind not in ("splits", "mapping"):
            return {"": self}
        return {str(name): open_source(part) for name, part in self.data.items()}

    @property
    def train(self) -> Source:
        """What is trained on: the split ``train`` or else the first one; of any other dataset itself."""
        if self.kind == "splits" or "train" in self.parts:
            return self.parts.get("train", next(iter(self.parts.values())))
        return self

    @property
    def columns(self) -> list[str]:
        """The names of the columns of a dataset, a stream or a table; of other rows the keys of the first."""
        if self.kind == "frame":
            return list(map(str, self.data.columns))
        if self.kind in ("dataset", "stream", "table"):
            return list(self.data.column_names or ())
        first = self.data[0] if self.kind in ("list", "indexed") and self.length else None
        return list(first) if isinstance(first, Mapping) else []

    def select(self, rows: Sequence[int]) -> Any:
        """The ``rows`` as a dataset of the same kind, or as a ``torch.utils.data.Subset``."""
        if self.kind == "dataset":
            return self.data.select(list(rows))
        if self.kind in ("list", "paths"):
            return type(self.data)([self.data[row] for row in rows])
        from torch.utils.data import Subset

        return Subset(self.data, list(rows))

    def undecoded(self) -> Any:
        """The dataset, or the splits, with ``Audio`` columns as they are stored, which ``load_audio`` decodes."""
        if self.kind == "splits":
            return type(self.data)({name: part.undecoded() for name, part in self.parts.items()})
        dataset = self.data
        for name in self.decoded_columns():
            from datasets import Audio

            dataset = dataset.cast_column(name, Audio(decode=False))
        return dataset

    def audio_features(self) -> dict[str, datasets.Audio]:
        """The ``Audio`` columns of a dataset or a stream, by name."""
        features = self.data.features if self.kind in ("dataset", "stream") else None
        return {name: feature for name, feature in (features or {}).items() if type(feature).__name__ == "Audio"}

    def decoded_columns(self) -> list[str]:
        """The ``Audio`` columns that the package datasets decodes."""
        return [name for name, feature in self.audio_features().items() if feature.decode]

    def stored(self, names: Sequence[str]) -> Any:
        """These columns of a ``datasets.Dataset`` as they are stored, without its format or transform."""
        return open_source(self.data.with_format(None).select_columns(list(names))).undecoded()

    def stream(self) -> datasets.IterableDataset:
        """The stream, opened where it is named by addresses. Raises ``InvalidArgumentError`` for what is none."""
        if self.kind == "stream":
            return self.data
        if self.kind in ("address", "path", "paths"):
            return open_stream([self.data] if isinstance(self.data, str | os.PathLike) else self.data)
        raise InvalidArgumentError(
            f"{kind_of(self.data)} is no stream of clips",
            'pass a dataset that was loaded with streaming=True, or addresses such as "hf://datasets/me/mine/*.parquet"',
        )


def open_source(dataset: object) -> Source:
    """What ``dataset`` is. Nothing is read, except the first row of a list."""
    if isinstance(dataset, Source):
        return dataset
    if isinstance(dataset, ScanResult):
        return replace(open_source(dataset.source), scan=dataset)
    return Source(dataset, _kind(dataset))


def _kind(dataset: object) -> SourceKind:
    if isinstance(dataset, str | os.PathLike):
        return "address" if isinstance(dataset, str) and is_remote(dataset) else "path"
    if isinstance(dataset, Mapping):
        named = dataset and all(hasattr(part, "column_names") for part in dataset.values())
        return "splits" if named else "mapping"
    has_length = hasattr(dataset, "__len__")
    if hasattr(dataset, "column_names") and hasattr(dataset, "features"):
        return "dataset" if has_length else "stream"
    if hasattr(dataset, "column_names") and hasattr(dataset, "schema"):
        return "table"
    if hasattr(dataset, "columns") and hasattr(dataset, "iloc"):
        return "frame"
    if isinstance(dataset, list | tuple):
        return _kind_of_list(dataset)
    if isinstance(dataset, bytes | DatasetProfile):
        return "other" if isinstance(dataset, bytes) else "profile"
    if has_length and hasattr(dataset, "__getitem__"):
        return "indexed"
    return "iterable" if hasattr(dataset, "__iter__") else "other"


def _kind_of_list(items: Sequence[object]) -> SourceKind:
    kinds = set(map(type, items))  # a million paths are of one type or two
    if not kinds or not all(issubclass(item, str | os.PathLike) for item in kinds):
        return "list"
    return "address" if all(isinstance(item, str) and is_remote(item) for item in items) else "paths"


def is_array(value: object) -> bool:
    """A NumPy array, a torch tensor, or anything of their shape."""
    return hasattr(value, "shape") and hasattr(value, "dtype")


def is_remote(name: str) -> bool:
    """Whether a name is an address that fsspec opens, such as ``hf://``, ``s3://`` or ``https://``."""
    return "://" in name and not name.startswith("pipe:")


def open_stream(names: Sequence[str | os.PathLike[str]]) -> datasets.IterableDataset:
    """Tar shards (WebDataset) or Parquet files at addresses that fsspec opens, as a ``datasets.IterableDataset``."""
    remote = all(isinstance(name, str) and is_remote(name) for name in names)
    builders = {builder for name in names if remote for end, builder in _BUILDERS.items() if end in str(name).lower()}
    if len(builders) != 1:
        raise InvalidArgumentError(
            f"cannot stream {', '.join(map(str, names[:1]))}",
            'pass addresses of .tar shards or of .parquet files, such as "https://example.org/train-00.tar"',
        )
    hint = "pip install datasets, or download the files first"
    load_dataset = imported("datasets", f"streaming {names[0]}", hint).load_dataset
    return load_dataset(builders.pop(), data_files=list(names), split="train", streaming=True)
