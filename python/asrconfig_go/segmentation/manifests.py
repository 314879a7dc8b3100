"""Tables of clips and transcripts in files: CSV, TSV, JSON lines; and folders with a text file beside each clip."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from .._base import native
from .._base.errors import CorruptFileError, EmptyDatasetError
from .._base.listing import listed, shortened
from ..data.column_names import find_column
from ..data.manifest_rows import ManifestRow, manifest_rows
from ..data.scan import scan_audio
from ..loading.clip_ranges import named_range
from ..view.units import plural
from .segments import SEGMENT_COLUMNS, SEGMENTS, as_json, segment_column
from .subtitles import read_subtitles, subtitles_beside
from .text_slices import joined

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
