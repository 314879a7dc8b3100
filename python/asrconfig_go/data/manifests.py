"""Manifests, and folders of clips with their transcripts, as ``datasets.Dataset``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._core import native
from .._core.files import utf8
from .._core.output import listed, shortened
from .._core.render import plural
from ..errors import CorruptFileError, EmptyDatasetError
from .columns import find_column
from .scan import scan_audio
from .scan_jobs import scan_job, wait
from .segments import (
    SEGMENT_COLUMNS,
    SEGMENTS,
    as_json,
    joined,
    named_range,
    read_subtitles,
    segment_column,
    subtitles_beside,
)

if TYPE_CHECKING:
    from datasets import Dataset

TRAIN = ("train", "training")
EVALUATION = ("validation", "valid", "dev", "eval", "evaluation", "test")
TABLES = (".csv", ".tsv", ".jsonl", ".ndjson", ".json")
_AT_ONCE = 50_000  # rows fetched per call
_NAMED = 5  # bad rows that a note names
_SLACK_S = 0.02  # of a row's piece at the end of its file: manifests round to hundredths
_HINT = "give a manifest with a row for each clip"


@dataclass(frozen=True)
class ManifestRow:
    """One row; ``error`` is the reason why its line, which ``path`` then names, cannot be read."""

    path: str
    offset: float
    seconds: float
    """Of a piece; 0 is to the end of the file."""
    piece: bool
    text: str | None
    extra: list[str | None] | None
    error: str


def listed_rows(request: dict[str, object]) -> tuple[list[str], list[ManifestRow]]:
    """The columns of a manifest and its rows in order, or the files of a folder, as the library lists them.

    There are no rows where no column of a manifest holds paths.
    """
    rows: list[ManifestRow] = []
    with scan_job("scan.start", {**request, "list": True}) as job:
        wait(job)
        while True:
            page = native.call("scan.rows", {"job": job, "offset": len(rows), "limit": _AT_ONCE})
            rows += [ManifestRow(**row) for row in page["rows"]]
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
        extra = dict(zip(("split", *SEGMENT_COLUMNS), row.extra or (), strict=False))
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


def read_folder(folder: Path) -> dict[str, Dataset]:
    """The splits of a folder of Parquet files, or of clips with a .txt, .srt or .vtt file beside them.

    There are none where it holds neither.
    """
    files = [Path(row.path) for row in listed_rows({"folder": utf8(folder)})[1] if not row.error]
    if all(file.suffix == ".parquet" for file in files):
        return read_parquet_splits(files) if files else {}
    texts = [_text(clip) for clip in files]
    if all(text is None for text in texts):
        return {}
    return {"train": paired((str(clip.resolve()), text, None) for clip, text in zip(files, texts, strict=True))}


def read_parquet_splits(files: Sequence[Path]) -> dict[str, Dataset]:
    """Parquet files by the split that their names begin with, or that their folders are called."""
    from datasets import load_dataset

    splits: dict[str, list[str]] = {}
    for file in files:
        begin = re.split(r"[-_.]", file.stem)[0]
        names = [part for part in (begin, file.parent.name) if part in (*TRAIN, *EVALUATION)]
        splits.setdefault(names[0] if names else "train", []).append(str(file))
    return dict(load_dataset("parquet", data_files=splits))


def _text(clip: Path) -> str | None:
    path = clip.with_suffix(".txt")
    try:
        return path.read_text(encoding="utf-8-sig").strip()
    except FileNotFoundError:
        subtitles = subtitles_beside(clip)
        return None if subtitles is None else joined([cue.text for cue in read_subtitles(subtitles)])
    except (OSError, ValueError) as error:
        raise CorruptFileError(f"{path} cannot be read as a transcript: {error}", "write it as UTF-8") from error
