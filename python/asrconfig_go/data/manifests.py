"""Manifests and folders of clips and transcripts, and the splits of a source of speech."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from .._core import native
from .._core.files import user_path, utf8
from .._core.hub import from_hub
from .._core.output import listed, shortened
from .._core.render import plural
from .._core.storage import from_storage
from ..errors import CorruptFileError, EmptyDatasetError, InvalidArgumentError, NotFoundError
from .columns import find_column
from .parquet_sources import frame_table, parquet_files, read_saved
from .pieces import named_range
from .scan import scan_audio
from .scan_jobs import scan_job, wait
from .segments import SEGMENT_COLUMNS, SEGMENTS, as_json, joined, read_subtitles, segment_column, subtitles_beside

_AT_ONCE = 50_000  # rows fetched per call


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


def manifest_rows(
    path: Path, audio_column: str | None, text_column: str | None, extra: Sequence[str]
) -> tuple[list[str], list[ManifestRow]]:
    """The columns of a manifest, and its rows in order with the values of ``extra`` columns.

    There are no rows where no column holds paths.
    """
    request = {"manifest": utf8(path), "list": True, "columns": list(extra)}
    request |= {"audio_field": audio_column or "", "text_field": text_column or ""}
    rows: list[ManifestRow] = []
    with scan_job("scan.start", request) as job:
        wait(job)
        while True:
            page = native.call("scan.rows", {"job": job, "offset": len(rows), "limit": _AT_ONCE})
            rows += [ManifestRow(**row) for row in page["rows"]]
            if len(page["rows"]) < _AT_ONCE:
                return list(page["columns"] or ()), rows


TABLES = (".csv", ".tsv", ".jsonl", ".ndjson", ".json")
_NAMED = 5  # bad rows that a note names
_SLACK_S = 0.02  # of a row's piece at the end of its file: manifests round to hundredths
_HINT = "give a manifest with a row for each clip"


def is_table(path: Path) -> bool:
    """Whether a file is a manifest by its name."""
    return path.name.lower().removesuffix(".gz").endswith(TABLES)


def read_manifest(path: Path, audio_column: str | None, text_column: str | None, notes: list[str]) -> dict[str, Any]:
    """Splits by name, ``"train"`` where the manifest has no column ``split``, as ``datasets.Dataset``.

    The library reads it, as for ``scan_audio`` and ``check_labels``. The datasets have the audio's paths and the
    transcripts, and the column with segments. Rows that cannot be read are left out and named in ``notes``. Raises
    ``InvalidArgumentError`` for columns that are not there.
    """
    columns, rows = manifest_rows(path, audio_column, text_column, ("split", *SEGMENT_COLUMNS))
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


def paired(rows: Iterable[tuple[str, Any, Any]], audio: str = "audio", text: str = "text") -> Any:
    """A ``datasets.Dataset`` of (path, transcript, segments), the last column only where one has any."""
    import datasets

    files, texts, timed = zip(*rows, strict=True)
    columns = {audio: list(files), text: list(texts)}
    if any(timed):
        columns[SEGMENTS] = [as_json(segments) for segments in timed]
    features = datasets.Features(dict.fromkeys(columns, datasets.Value("string")))
    return datasets.Dataset.from_dict(columns, features=features)


def read_pairs(folder: Path) -> Any | None:
    """A ``datasets.Dataset`` of a folder's clips with a .txt, .srt or .vtt file beside them; None for none of them."""
    endings = tuple(native.call("library.info")["audio_extensions"])
    clips = [path for path in sorted(folder.rglob("*")) if path.suffix.lower() in endings]
    texts = [_text(clip) for clip in clips]
    if all(text is None for text in texts):
        return None
    return paired((str(clip.resolve()), text, None) for clip, text in zip(clips, texts, strict=True))


def _text(clip: Path) -> str | None:
    path = clip.with_suffix(".txt")
    try:
        return path.read_text(encoding="utf-8-sig").strip()
    except FileNotFoundError:
        subtitles = subtitles_beside(clip)
        return None if subtitles is None else joined([cue.text for cue in read_subtitles(subtitles)])
    except (OSError, ValueError) as error:
        raise CorruptFileError(f"{path} cannot be read as a transcript: {error}", "write it as UTF-8") from error


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
        from .digits import CLIPS

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
