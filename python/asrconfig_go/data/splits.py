"""Reads speech with transcripts as one ``datasets.Dataset`` for each split, from whatever a user passes.

A user passes the demo, a folder, a manifest, a name on the Hub, a dataset or a table. ``load_speech`` and
``processor_examples`` call ``splits_of``. It reads files, and downloads datasets of the Hub; audio is not decoded.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._core import native
from .._core.files import from_storage, user_path, utf8
from .._core.output import kind_of, listed, shortened
from .._core.render import plural
from .._core.requirements import from_hub
from .._core.settings import SAMPLING_RATE
from ..errors import CorruptFileError, EmptyDatasetError, InvalidArgumentError, NotFoundError
from .columns import find_column
from .data_records import ManifestRow
from .scan import scan_audio
from .scan_inputs import SHARDS
from .scan_jobs import scan_job, wait
from .segments import SEGMENT_COLUMNS, SEGMENTS, as_json, named_range, segment_column
from .source import CLIPS, EVALUATION, TRAIN, TRAINED, Source, is_array, open_source
from .table_sources import SPLIT, ParquetFiles, dataset_texts, files_by_split, frame_table, read_saved
from .transcript_files import FolderTexts

if TYPE_CHECKING:
    from datasets import Dataset

TABLES = (".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".scp")
_AT_ONCE = 50_000  # rows fetched per call
_NAMED = 5  # bad rows that a note names
_SLACK_S = 0.02  # of a row's piece at the end of its file: manifests round to hundredths
_HINT = "pass a manifest with a row for each clip"
_MANIFESTS = ("metadata", "manifest", "transcripts", "transcript", "data")  # file names of one manifest for all splits
_HUB_NAME = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")
_WITHOUT_HUB = 'a folder or a manifest on this machine, or "demo", needs no network'
_ACCEPTED = (
    'pass "demo", a folder (with metadata.csv or .jsonl, or with x.txt beside each x.wav), a manifest, the name of a '
    "dataset on the Hub, a datasets.Dataset, a pandas.DataFrame, a pyarrow.Table or a list of rows"
)


def splits_of(
    source: Any, audio: str | None, text: str | None, hub: dict[str, str | None], notes: list[str]
) -> dict[str, Dataset]:
    """Read the splits of what ``load_speech`` accepts by their names: ``"train"`` where they have none.

    ``hub`` has the ``name`` (configuration), ``split``, ``evaluation_split`` and ``token`` of a dataset of the Hub; it
    is empty where only local sources are expected. Sentences on rows that manifests leave out are appended to
    ``notes``. Raises what ``load_speech`` raises.
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
        case "list" if opened.columns:
            from datasets import Dataset

            return {"train": Dataset.from_list([{name: _stored(row[name]) for name in row} for row in source])}
        case "table" | "frame":
            from datasets import Dataset

            return {"train": Dataset(source if opened.kind == "table" else frame_table(source))}
    raise InvalidArgumentError(f"cannot read speech from {kind_of(source)}", _ACCEPTED)


def _stored(value: Any) -> Any:
    """A value of a row as a ``datasets.Dataset`` stores it."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return {"array": value, "sampling_rate": SAMPLING_RATE} if is_array(value) else value


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
    tables = _tables(path)
    parts = _parts(path, tables)
    if "" in parts:
        return read_manifest(parts[""], audio, text, notes)
    if parts:
        read = {name: _folder if part.is_dir() else read_manifest for name, part in parts.items()}
        splits = {name: read[name](part, audio, text, notes) for name, part in parts.items()}
        return {name: open_source(part).train.data for name, part in splits.items()}
    if splits := read_folder(path, notes):
        return splits
    files = list(map(str, [*tables.values(), *path.glob("*.parquet")]))
    hint = f"pass the manifest with its transcripts: {listed(files, ' or ')}" if files else _ACCEPTED
    raise NotFoundError(f"{path} holds no clips with transcripts", hint)


def _tables(folder: Path) -> dict[str, Path]:
    return {file.name.partition(".")[0]: file for file in sorted(folder.iterdir()) if is_table(file)}


def _parts(folder: Path, tables: dict[str, Path]) -> dict[str, Path]:
    """The manifests of a folder's splits; or its one manifest, as ``""``; or the folders of its splits; or none."""
    names = (*TRAIN, *EVALUATION)
    manifests = {name: file for name, file in tables.items() if name in names}
    folders = {name: folder / name for name in names if (folder / name).is_dir()}
    of_all = [{"": tables[name]} for name in _MANIFESTS if name in tables]
    return next((parts for parts in (manifests, *of_all, folders) if {"", *TRAIN} & set(parts)), {})


def trained_part(dataset: object) -> Source:
    """What ``load_speech`` trains on: of a folder or a file with splits the split train.

    Of what it returned, a ``SpeechData``, the clips to train on.
    """
    if hasattr(dataset, "train") and hasattr(dataset, "evaluation"):
        return open_source(dataset.train)
    source = open_source(dataset)
    if source.kind != "path" or source.scan is not None:
        return source
    path = user_path(source.data, "dataset")
    parts = _parts(path, _tables(path)) if path.is_dir() else {}
    return next((trained_part(parts[name]) for name in TRAIN if name in parts), replace(source, trained=True))


def can_load(name: str) -> bool:
    """Whether ``load_speech`` takes what ``scan_audio`` has measured: no shards, and no list or pattern of paths."""
    path = user_path(name, "dataset")
    if path.is_dir():
        return not any(file.name.lower().endswith(SHARDS) for file in path.iterdir())
    return name == "demo" or (path.is_file() and (is_table(path) or path.suffix.lower() == ".parquet"))


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


def listed_rows(request: dict[str, object]) -> tuple[list[str], list[ManifestRow]]:
    """The columns of a manifest and its rows in order, or the files of a folder, as the library lists them.

    There are no rows where no column of a manifest holds paths.
    """
    rows: list[ManifestRow] = []
    with scan_job("scan.start", {**request, "list": True}) as job:
        wait(job)
        while True:
            page = native.call("scan.rows", {"job": job, "offset": len(rows), "limit": _AT_ONCE})
            rows += [ManifestRow(**{**row, "extra": tuple(row["extra"] or ())}) for row in page["rows"]]
            if len(page["rows"]) < _AT_ONCE:
                return list(page["columns"] or ()), rows


def is_table(path: Path) -> bool:
    """Whether a file is a manifest by its name."""
    return path.name.lower().removesuffix(".gz").endswith(TABLES)


def read_manifest(
    path: Path, audio_column: str | None, text_column: str | None, notes: list[str]
) -> dict[str, Dataset]:
    """Splits by name, ``"train"`` where the manifest has no column ``split``, as ``datasets.Dataset``.

    The library reads it, as for ``scan_audio`` and ``check_labels``. The datasets have the audio's paths and the
    transcripts, and the column with segments. Rows that cannot be read are left out and named in ``notes``. Raises
    ``InvalidArgumentError`` for columns that are not there.
    """
    fields = {"audio_field": audio_column or "", "text_field": text_column or ""}
    columns, rows = listed_rows({"manifest": utf8(path), "columns": ["split", *SEGMENT_COLUMNS], **fields})
    if columns and not rows:
        find_column(columns, "audio", audio_column)
    if not rows:
        raise EmptyDatasetError(f"{path} has no rows", _HINT)
    good = _readable(rows, path, notes)
    if all(row.text is None for row in good):
        find_column(columns, "text", text_column)
    timed = segment_column(columns, audio_column or "", text_column or "")
    splits: dict[str, list[tuple[str, str | None, Any]]] = {}
    for row, file in zip(good, _files(good), strict=True):
        extra = dict(zip(("split", *SEGMENT_COLUMNS), row.extra, strict=False))
        splits.setdefault(extra.get("split") or "train", []).append((file, row.text, extra.get(timed or "")))
    return {name: paired(part, audio_column or "audio", text_column or "text") for name, part in splits.items()}


def _readable(rows: list[ManifestRow], path: Path, notes: list[str]) -> list[ManifestRow]:
    bad = [f"{Path(row.path).name}: {row.error}" for row in rows if row.error]
    if bad:
        named = listed(map(shortened, bad), "; ", _NAMED)
        problem = f"{len(bad)} of {plural(len(rows), 'row')} of {path.name} cannot be read"
        if len(bad) == len(rows):
            raise EmptyDatasetError(f"{problem}: {named}", _HINT)
        notes.append(f"{problem} and {'is' if len(bad) == 1 else 'are'} left out: {named}")
    return [row for row in rows if not row.error]


def _files(rows: Sequence[ManifestRow]) -> list[str]:
    """The paths of rows, with the piece that each selects. One that ends with its file needs the file's length."""
    open_ended = list(dict.fromkeys(row.path for row in rows if row.piece and not (row.offset and row.seconds)))
    lengths: dict[str, float] = {}
    if open_ended:
        lengths = dict(zip(open_ended, scan_audio(open_ended, allow_empty=True, progress=False).durations, strict=True))
    return [_named(row, lengths) if row.piece else row.path for row in rows]


def _named(row: ManifestRow, lengths: dict[str, float]) -> str:
    length = lengths.get(row.path, 0.0)
    end = row.offset + row.seconds if row.seconds else length
    entire_file = not row.offset and not (row.seconds and end < length - _SLACK_S)
    return row.path if entire_file or not end > row.offset else named_range(row.path, row.offset, end)


def paired(rows: Iterable[tuple[str, Any, Any]], audio: str = "audio", text: str = "text") -> Dataset:
    """A ``datasets.Dataset`` of (path, transcript, segments), the last column only where one has any."""
    import datasets

    files, texts, timed = zip(*rows, strict=True)
    columns = {audio: list(files), text: list(texts)}
    if any(timed):
        columns[SEGMENTS] = [as_json(segments) for segments in timed]
    features = datasets.Features(dict.fromkeys(columns, datasets.Value("string")))
    return datasets.Dataset.from_dict(columns, features=features)


def read_folder(folder: Path, notes: list[str]) -> dict[str, Dataset]:
    """The splits of a folder of Parquet files, of Kaldi, of LibriSpeech, of VCTK, or of clips with texts beside them.

    Such a text is a .txt, .srt or .vtt. There are no splits where the folder holds no texts.
    """
    rows = _readable(listed_rows({"folder": utf8(folder), "columns": [SPLIT], **TRAINED})[1], folder, notes)
    files = [Path(row.path) for row in rows]
    if all(file.suffix == ".parquet" for file in files):
        return read_parquet_splits(files) if files else {}
    texts = [row.text for row in rows]
    if all(text is None for text in texts):
        root = Path(os.path.normpath(folder))  # as the library names it
        written = {parent: FolderTexts.of(parent, root) for parent in {file.parent for file in files}}
        texts = [written[file.parent].text(file) for file in files]
    if all(text is None for text in texts):
        return {}
    absolute = _files([replace(row, path=str(file.resolve())) for row, file in zip(rows, files, strict=True)])
    splits: dict[str, list[tuple[str, str | None, None]]] = {}
    for row, path, text in zip(rows, absolute, texts, strict=True):
        splits.setdefault(next(iter(row.extra), None) or "train", []).append((path, text, None))
    return {name: paired(part) for name, part in splits.items()}


def read_parquet_splits(files: Sequence[Path]) -> dict[str, Dataset]:
    """Parquet files by their splits, or else by those of their rows, in a column ``split``."""
    from datasets import load_dataset
    from datasets.exceptions import DatasetGenerationError

    named = {name: list(map(str, ParquetFiles(part).files)) for name, part in files_by_split(files).items()}
    try:
        splits = dict(load_dataset("parquet", data_files=named))
    except DatasetGenerationError as error:
        if getattr(error.__cause__, "errno", None):  # of the disk where datasets writes
            raise
        why = shortened(" ".join(str(error.__cause__ or error).split()))
        problem = f"the Parquet files of {files[0].parent} cannot be read as one dataset: {why}"
        raise CorruptFileError(problem, "write them again, all with the same columns and types") from error
    (name, dataset), *others = splits.items()
    if others or SPLIT not in dataset.column_names:
        return splits
    rows: dict[str, list[int]] = {}
    for row, split in enumerate(dataset_texts(dataset, SPLIT)):
        rows.setdefault(str(split or name), []).append(row)
    return {split: dataset.select(numbers) for split, numbers in rows.items()}


def demo_rows() -> list[dict[str, Any]]:
    """The rows of the demo's manifest in file order, ``audio_filepath`` made absolute."""
    lines = (CLIPS / "manifest.jsonl").read_text(encoding="utf-8").splitlines()
    rows: list[dict[str, Any]] = [json.loads(line) for line in lines]
    return [row | {"audio_filepath": str((CLIPS / row["audio_filepath"]).resolve())} for row in rows]


def load_split(split: str) -> Dataset:
    """One split of the demo (``"train"`` or ``"test"``): audio (not decoded), text, and length in samples."""
    import datasets

    rows = [row for row in demo_rows() if row["split"] == split]
    columns = {
        "audio": [row["audio_filepath"] for row in rows],
        "text": [row["text"] for row in rows],
        "length": [round(row["duration"] * SAMPLING_RATE) for row in rows],
    }
    return datasets.Dataset.from_dict(columns).cast_column("audio", datasets.Audio(decode=False))
