"""Reads speech with transcripts as one ``datasets.Dataset`` for each split, from whatever a user passes.

A user passes the demo, a folder, a manifest, a name on the Hub, a dataset or a table. ``load_speech`` and
``processor_examples`` call ``splits_of``. It reads files, and downloads datasets of the Hub; audio is not decoded.
"""

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

_MANIFESTS = ("metadata", "manifest", "transcripts", "transcript", "data")  # file names of one manifest for all splits
_HUB_NAME = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")
_WITHOUT_HUB = 'a folder or a manifest on this machine, or "demo", needs no network'
_ACCEPTED = (
    'pass "demo", a folder (with metadata.csv or .jsonl, or with x.txt beside each x.wav), a manifest, the name of a '
    "dataset on the Hub, a datasets.Dataset, a pandas.DataFrame or a pyarrow.Table"
)


def splits_of(
    source: Any, audio: str | None, text: str | None, hub: dict[str, str | None], notes: list[str]
) -> dict[str, Dataset]:
    """Read the splits of ``source`` by their names.

    Args:
        source: What holds the speech, in any form that ``load_speech`` accepts.
        audio: The column of audio or its paths; None for its usual names.
        text: The column of transcripts; None for its usual names.
        hub: For a dataset of the Hub its ``name`` (configuration), ``split``, ``evaluation_split`` and ``token``; empty
            where only local sources are expected.
        notes: Sentences on rows that manifests leave out are appended to it.

    Returns:
        The datasets by split; ``"train"`` for a source without named splits.

    Raises:
        InvalidArgumentError: For a source of another type, or a file that is no manifest.
        NotFoundError: For a path that does not exist, and a folder without clips that have transcripts.
        StorageError: Where the storage of a path does not answer.
    """
    opened = open_source(source)
    match opened.kind:
        case "path" if source == "demo":
            return read_manifest(CLIPS / "manifest.jsonl", None, None, notes)
        case "path" | "address" if isinstance(source, str | os.PathLike):
            path = user_path(source, "dataset")
            return _local(path, audio, text, notes) if path.exists() else _from_hub(os.fspath(source), hub)
        case "splits" | "mapping":
            return {name: part.data for name, part in opened.parts.items()}
        case "dataset" | "stream":
            return {"train": source}
        case "table" | "frame":
            from datasets import Dataset

            return {"train": Dataset(source if opened.kind == "table" else frame_table(source))}
    raise InvalidArgumentError(f"cannot read speech from a {type(source).__name__}", _ACCEPTED)


def _local(path: Path, audio: str | None, text: str | None, notes: list[str]) -> dict[str, Dataset]:
    """Read a file or a folder, several times where its storage does not answer at first."""

    def read() -> tuple[dict[str, Dataset], list[str]]:
        new_notes: list[str] = []  # of this attempt alone
        return (_folder if path.is_dir() else _file)(path, audio, text, new_notes), new_notes

    splits, new_notes = from_storage(path, read)
    notes += new_notes
    return splits


def _file(path: Path, audio: str | None, text: str | None, notes: list[str]) -> dict[str, Dataset]:
    if is_table(path):
        return read_manifest(path, audio, text, notes)
    if path.suffix.lower() == ".parquet":
        return read_parquet_splits([path])
    raise InvalidArgumentError(f"{path} is not a manifest: {', '.join(TABLES)} and .parquet are known", _ACCEPTED)


def _folder(path: Path, audio: str | None, text: str | None, notes: list[str]) -> dict[str, Dataset]:
    """Read a folder by the first layout that it has.

    The layouts are: a dataset saved by ``save_to_disk``, a manifest for each split (train.csv, test.csv), one manifest
    (metadata.csv), a folder for each split, and a text file beside each clip.
    """
    saved = read_saved(path)
    if saved is not None:
        return {name or "train": part.data for name, part in open_source(saved).parts.items()}
    tables = {file.name.partition(".")[0]: file for file in sorted(path.iterdir()) if is_table(file)}
    table_of_split = {name: file for name, file in tables.items() if name in (*TRAIN, *EVALUATION)}
    if set(table_of_split) & set(TRAIN):
        return {split: read_manifest(file, audio, text, notes)["train"] for split, file in table_of_split.items()}
    for name in _MANIFESTS:
        if name in tables:
            return read_manifest(tables[name], audio, text, notes)
    folders = [split for split in (*TRAIN, *EVALUATION) if (path / split).is_dir()]
    if set(folders) & set(TRAIN):
        return {split: _folder(path / split, audio, text, notes)["train"] for split in folders}
    if splits := read_folder(path):
        return splits
    listing = f" (tables there: {', '.join(file.name for file in tables.values())})" if tables else ""
    raise NotFoundError(f"{path} holds no clips with transcripts{listing}", _ACCEPTED)


def _from_hub(name: str, hub: dict[str, str | None]) -> dict[str, Dataset]:
    if not _HUB_NAME.fullmatch(name) or name.endswith(TABLES):
        raise NotFoundError(f"the data {name!r} does not exist", f"the working folder is {Path.cwd()}")

    from datasets import load_dataset

    def load(split: str | None) -> Any:
        download = partial(load_dataset, name, hub["name"], split=split, token=hub["token"])
        return from_hub("the dataset", name, download, _WITHOUT_HUB)

    if hub["split"] is None:
        return dict(load(None))
    return {split: load(split) for split in (hub["split"], hub["evaluation_split"]) if split is not None}
