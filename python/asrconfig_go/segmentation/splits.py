"""The splits of a source of speech, by their names, as ``datasets.Dataset``."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from .._base.errors import InvalidArgumentError, NotFoundError
from .._base.files import user_path
from .._base.hub_downloads import from_hub
from .._base.storage import from_storage
from ..data.parquet_sources import frame_table, parquet_files, read_saved
from .manifests import TABLES, is_table, read_manifest, read_pairs

TRAIN = ("train", "training")
EVALUATION = ("validation", "valid", "dev", "eval", "evaluation", "test")
_MANIFESTS = ("metadata", "manifest", "transcripts", "transcript", "data")
_HUB_NAME = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")
_ACCEPTED = (
    'pass "demo", a folder (with metadata.csv or .jsonl, or with x.txt beside each x.wav), a manifest, the name of a '
    "dataset on the Hub, a datasets.Dataset, a pandas.DataFrame or a pyarrow.Table"
)


def splits_of(
    source: Any, audio: str | None, text: str | None, hub: dict[str, Any], notes: list[str]
) -> dict[str, Any]:
    """The splits of ``source`` by their names; ``notes`` gets what is left out of its manifests."""
    if isinstance(source, str) and source == "demo":
        from ..demo.digits import CLIPS

        return read_manifest(CLIPS / "manifest.jsonl", None, None, notes)
    if isinstance(source, str | os.PathLike):
        path = user_path(source, "dataset")
        return _local(path, audio, text, notes) if path.exists() else _remote(os.fspath(source), hub)
    if isinstance(source, Mapping):
        return {str(name): part for name, part in source.items()}
    if hasattr(source, "column_names") and hasattr(source, "features"):
        return {"train": source}
    if hasattr(source, "schema") or hasattr(source, "iloc"):
        from datasets import Dataset

        return {"train": Dataset(source if hasattr(source, "schema") else frame_table(source))}
    raise InvalidArgumentError(f"cannot read speech from a {type(source).__name__}", _ACCEPTED)


def _local(path: Path, audio: str | None, text: str | None, notes: list[str]) -> dict[str, Any]:
    def read() -> tuple[dict[str, Any], list[str]]:  # more than once where storage does not answer at first
        new: list[str] = []
        return (_folder if path.is_dir() else _file)(path, audio, text, new), new

    splits, new = from_storage(path, read)
    notes += new
    return splits


def _file(path: Path, audio: str | None, text: str | None, notes: list[str]) -> dict[str, Any]:
    if is_table(path):
        return read_manifest(path, audio, text, notes)
    if path.suffix.lower() == ".parquet":
        return _parquet([path])
    raise InvalidArgumentError(f"{path} is not a manifest: {', '.join(TABLES)} and .parquet are known", _ACCEPTED)


def _folder(path: Path, audio: str | None, text: str | None, notes: list[str]) -> dict[str, Any]:
    saved = read_saved(path)
    if saved is not None:
        return dict(saved) if isinstance(saved, Mapping) else {"train": saved}
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
    files = parquet_files(path)
    pairs = None if files else read_pairs(path)
    if files or pairs is not None:
        return _parquet(files) if files else {"train": pairs}
    there = f" (tables there: {', '.join(file.name for file in tables.values())})" if tables else ""
    raise NotFoundError(f"{path} holds no clips with transcripts{there}", _ACCEPTED)


def _parquet(files: list[Path]) -> dict[str, Any]:
    from datasets import load_dataset

    splits: dict[str, list[str]] = {}
    for file in files:
        begin = re.split(r"[-_.]", file.stem)[0]
        names = [part for part in (begin, file.parent.name) if part in (*TRAIN, *EVALUATION)]
        splits.setdefault(names[0] if names else "train", []).append(str(file))
    return dict(load_dataset("parquet", data_files=splits))


def _remote(name: str, hub: dict[str, Any]) -> dict[str, Any]:
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
