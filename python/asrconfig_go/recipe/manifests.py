"""Tables of clips and transcripts in files: CSV, TSV, JSON lines; and folders with a text file beside each clip."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from .._base import native
from .._base.errors import CorruptFileError, EmptyDatasetError
from ..segmentation.subtitles import read_subtitles, subtitles_beside
from ..segmentation.text_slices import joined
from .column_names import find_column
from .manifest_pieces import named_pieces
from .timed_texts import SEGMENTS, as_json, segment_column

TABLES = (".csv", ".tsv", ".jsonl", ".ndjson", ".json")
_DELIMITERS = ",;|\t"
_LOOKED_AT = 20  # rows that tell where the audio of a manifest lies
_FOLDERS = ("", "clips", "wavs", "wav", "audio", "data")
_ENDINGS = ("", ".wav", ".flac", ".mp3", ".opus")


def read_table(path: Path) -> list[dict[str, Any]]:
    """The rows of a manifest in file order. Raises ``CorruptFileError`` with the line that cannot be read."""
    try:
        if path.suffix in (".csv", ".tsv"):
            with path.open(encoding="utf-8-sig", newline="") as file:
                return _csv_rows(file.read(), path.suffix == ".tsv")
        text = path.read_text(encoding="utf-8-sig")
        return _listed(json.loads(text)) if path.suffix == ".json" and text.lstrip()[:1] == "[" else _json_rows(text)
    except (OSError, ValueError, csv.Error) as error:
        raise CorruptFileError(f"{path} cannot be read as a manifest: {error}", "write it as UTF-8") from error


def _csv_rows(text: str, tabs: bool) -> list[dict[str, Any]]:
    head = text.partition("\n")[0]
    delimiter = "\t" if tabs else max(_DELIMITERS, key=head.count)
    file = io.StringIO(text, newline="")
    if tabs:  # as Common Voice writes them: a quotation mark is one
        return list(csv.DictReader(file, delimiter=delimiter, quoting=csv.QUOTE_NONE, restval=""))
    return list(csv.DictReader(file, delimiter=delimiter, restval=""))


def _json_rows(text: str) -> list[dict[str, Any]]:
    rows = []
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                rows += _listed([json.loads(line)])
            except ValueError as error:
                raise ValueError(f"line {number}: {error}") from error
    return rows


def _listed(rows: Any) -> list[dict[str, Any]]:
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError("a row is not an object with named fields")
    return rows


def read_manifest(path: Path, audio_column: str | None, text_column: str | None) -> dict[str, Any]:
    """Splits by name, ``"train"`` where the manifest has no column ``split``, as ``datasets.Dataset``.

    Of the columns they have the audio's (paths) and the transcript's, with the manifest's own names, and the one with
    segments. Raises ``InvalidArgumentError`` for columns that are not there.
    """
    rows = read_table(path)
    if not rows:
        raise EmptyDatasetError(f"{path} has no rows", "give a manifest with a row for each clip")
    columns = [str(name) for name in dict.fromkeys(name for row in rows[:1000] for name in row)]
    audio = find_column(columns, "audio", audio_column)
    text = find_column(columns, "text", text_column)
    timed = segment_column(columns, audio, text)
    paths = named_pieces(rows, _resolved(path.parent, [str(row.get(audio) or "") for row in rows]), path)
    splits: dict[str, list[tuple[str, Any, Any]]] = {}
    for row, file in zip(rows, paths, strict=True):
        splits.setdefault(str(row.get("split") or "train"), []).append((file, row.get(text), row.get(timed or "")))
    return {name: paired(found, audio, text) for name, found in splits.items()}


def paired(rows: Iterable[tuple[str, Any, Any]], audio: str = "audio", text: str = "text") -> Any:
    """A ``datasets.Dataset`` of (path, transcript, segments), the last column only where one has any."""
    import datasets

    files, texts, timed = zip(*rows, strict=True)
    columns = {audio: list(files), text: [None if each is None else str(each) for each in texts]}
    if any(timed):
        columns[SEGMENTS] = [as_json(each) for each in timed]
    features = datasets.Features(dict.fromkeys(columns, datasets.Value("string")))
    return datasets.Dataset.from_dict(columns, features=features)


def _resolved(folder: Path, names: Sequence[str]) -> list[str]:
    """Paths from the manifest's folder on, or a folder of clips in it, with an ending where names have none."""
    places = [(folder / sub, ending) for ending in _ENDINGS for sub in _FOLDERS]
    looked_at = [name for name in names[:_LOOKED_AT] if name]
    found = [sum((place / f"{name}{ending}").is_file() for name in looked_at) for place, ending in places]
    place, ending = places[found.index(max(found))]
    return [str((place / f"{name}{ending}").resolve()) if name else "" for name in names]


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
