"""The splits of speech with transcripts, by name: the demo, folders, manifests, datasets of the Hub, tables."""

from __future__ import annotations

import os
import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._core.files import user_path
from .._core.hub import from_hub
from .._core.storage import from_storage
from ..errors import InvalidArgumentError, NotFoundError
from .digits import CLIPS
from .manifests import EVALUATION, TABLES, TRAIN, is_table, read_folder, read_manifest, read_parquet_splits
from .parquet_sources import frame_table, read_saved
from .source import open_source

if TYPE_CHECKING:
    from datasets import Dataset

_MANIFESTS = ("metadata", "manifest", "transcripts", "transcript", "data")
_HUB_NAME = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")
_ACCEPTED = (
    'pass "demo", a folder (with metadata.csv or .jsonl, or with x.txt beside each x.wav), a manifest, the name of a '
    "dataset on the Hub, a datasets.Dataset, a pandas.DataFrame or a pyarrow.Table"
)


def splits_of(
    source: Any, audio: str | None, text: str | None, hub: dict[str, str | None], notes: list[str]
) -> dict[str, Dataset]:
    """The splits of ``source`` by their names; ``notes`` gets what is left out of its manifests."""
    opened = open_source(source)
    match opened.kind:
        case "path" if source == "demo":
            return read_manifest(CLIPS / "manifest.jsonl", None, None, notes)
        case "path" | "address" if isinstance(source, str | os.PathLike):
            path = user_path(source, "dataset")
            return _local(path, audio, text, notes) if path.exists() else _remote(os.fspath(source), hub)
        case "splits" | "mapping":
            return {name: part.data for name, part in opened.parts.items()}
        case "dataset" | "stream":
            return {"train": source}
        case "table" | "frame":
            from datasets import Dataset

            return {"train": Dataset(source if opened.kind == "table" else frame_table(source))}
    raise InvalidArgumentError(f"cannot read speech from a {type(source).__name__}", _ACCEPTED)


def _local(path: Path, audio: str | None, text: str | None, notes: list[str]) -> dict[str, Dataset]:
    def read() -> tuple[dict[str, Dataset], list[str]]:  # more than once where storage does not answer at first
        new: list[str] = []
        return (_folder if path.is_dir() else _file)(path, audio, text, new), new

    splits, new = from_storage(path, read)
    notes += new
    return splits


def _file(path: Path, audio: str | None, text: str | None, notes: list[str]) -> dict[str, Dataset]:
    if is_table(path):
        return read_manifest(path, audio, text, notes)
    if path.suffix.lower() == ".parquet":
        return read_parquet_splits([path])
    raise InvalidArgumentError(f"{path} is not a manifest: {', '.join(TABLES)} and .parquet are known", _ACCEPTED)


def _folder(path: Path, audio: str | None, text: str | None, notes: list[str]) -> dict[str, Dataset]:
    saved = read_saved(path)
    if saved is not None:
        return {name or "train": part.data for name, part in open_source(saved).parts.items()}
    tables = {file.name.partition(".")[0]: file for file in sorted(path.iterdir()) if is_table(file)}
    by_split = {stem: file for stem, file in tables.items() if stem in (*TRAIN, *EVALUATION)}
    if set(by_split) & set(TRAIN):
        return {stem: read_manifest(file, audio, text, notes)["train"] for stem, file in by_split.items()}
    for stem in _MANIFESTS:
        if stem in tables:
            return read_manifest(tables[stem], audio, text, notes)
    parts = [part for part in (*TRAIN, *EVALUATION) if (path / part).is_dir()]
    if set(parts) & set(TRAIN):
        return {part: _folder(path / part, audio, text, notes)["train"] for part in parts}
    if splits := read_folder(path):
        return splits
    there = f" (tables there: {', '.join(file.name for file in tables.values())})" if tables else ""
    raise NotFoundError(f"{path} holds no clips with transcripts{there}", _ACCEPTED)


def _remote(name: str, hub: dict[str, str | None]) -> dict[str, Dataset]:
    if not _HUB_NAME.fullmatch(name) or name.endswith(TABLES):
        raise NotFoundError(f"the data {name!r} does not exist", f"the working folder is {Path.cwd()}")

    from datasets import load_dataset

    offline = 'a folder or a manifest on this machine, or "demo", needs no network'

    def load(split: str | None) -> Any:
        download = partial(load_dataset, name, hub["name"], split=split, token=hub["token"])
        return from_hub("the dataset", name, download, offline)

    if hub["split"] is None:
        return dict(load(None))
    return {split: load(split) for split in (hub["split"], hub["evaluation_split"]) if split is not None}
