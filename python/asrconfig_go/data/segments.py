"""What is said when in a recording: segments, words, chunks, timestamp tokens, subtitles; and its pieces by times.

A piece is named ``talk.flac#t=12.5,30``, or cut from an array.
"""

from __future__ import annotations

import html
import json
import math
import os
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, TypeGuard

from .._core.files import from_storage
from .._core.output import listed
from .._core.settings import SAMPLING_RATE
from .._core.stored_clip import StoredClip
from ..errors import CorruptFileError, InvalidArgumentError
from .source import is_array

SEGMENTS = "segments"  # the column that has them in data ready to train on, as JSON
SEGMENT_COLUMNS = ("segments", "chunks", "words", "utterances", "timestamps")
_TEXTS = ("text", "word", "transcript", "sentence")
_TIME = re.compile(r"<\|(\d+(?:\.\d+)?)\|>")
_TOKEN = re.compile(r"<\|[^|<>]*\|>")
_OVERLAP_S = 0.05  # of neighbours: times are rounded
_MARGIN_S = 0.5  # how much of a pause stays at either end of a piece that has no room for all of it
_BEYOND_S = 0.5  # the end of the last one behind that of the audio
_HINT = "write start and end in seconds, in order: [{'start': 0.0, 'end': 2.5, 'text': '…'}, …]"
ENDINGS = (".srt", ".vtt")
_CUE = re.compile(r"\s*((?:\d+:)?\d+:\d+[.,]\d+)\s*-->\s*((?:\d+:)?\d+:\d+[.,]\d+)")
_RANGE = re.compile(r"(.*)#t=(\d+(?:\.\d+)?),(\d+(?:\.\d+)?)", re.DOTALL)
_TAG = re.compile(r"<[^>]*>|\{\\[^}]*\}")


@dataclass(frozen=True)
class Segment:
    """A text, and when it is said.

    Attributes:
        start: The time in seconds at which it begins.
        end: The time in seconds at which it ends.
        text: The words.
        score: The confidence of an alignment, 0 to 1; None for other segments.
    """

    start: float
    end: float
    text: str
    score: float | None = None


def segment_column(columns: Sequence[str], *excluded: str) -> str | None:
    """The column with segments, words or chunks, by its usual names."""
    return next((name for name in SEGMENT_COLUMNS if name in columns and name not in excluded), None)


def as_json(value: Any) -> str | None:
    """Segments in whatever form, for a column that takes all forms; None for none."""
    if value is None or isinstance(value, str):
        return value or None
    return json.dumps(value, ensure_ascii=False, default=str) if len(value) else None


def read_segments(value: Any, duration: float) -> list[Segment]:
    """The segments with text of a row's column, of a recording of ``duration`` seconds.

    ``value`` is a list of ``{"start", "end", "text"}`` (or ``"word"``), or of ``{"timestamp": (start, end), "text"}``
    as transformers' pipeline returns it, whose last end may be None; a dictionary of such lists; or the JSON of these.
    Raises ``InvalidArgumentError`` with the first one whose times are not numbers, negative, in the wrong order,
    overlapping, or behind the end of the recording.
    """
    try:
        rows = _rows(json.loads(value) if isinstance(value, str) else value)
    except json.JSONDecodeError as error:
        raise InvalidArgumentError(f"segments {value!r:.60} are not JSON: {error}", _HINT) from None
    segments = [_segment(i, row, duration if i == len(rows) - 1 else None) for i, row in enumerate(rows)]
    return checked_segments(segments, duration)


def checked_segments(segments: Sequence[Segment], duration: float) -> list[Segment]:
    """Those with a text, within the recording. Raises as ``read_segments``."""
    before = 0.0
    with_text = []
    for i, segment in enumerate(segments):
        where = f"segment {i} ({segment.start:g} s to {segment.end:g} s)"
        if not (math.isfinite(segment.start) and math.isfinite(segment.end)):
            raise InvalidArgumentError(f"{where} has times that are not finite numbers", _HINT)
        if segment.start < 0 or segment.end < segment.start:
            problem = "starts before 0 s" if segment.start < 0 else "ends before it starts"
            raise InvalidArgumentError(f"{where} {problem}", _HINT)
        if segment.start < before - _OVERLAP_S:
            raise InvalidArgumentError(f"{where} starts before the one in front of it ends, at {before:g} s", _HINT)
        if segment.end > duration + _BEYOND_S:
            raise InvalidArgumentError(f"{where} ends behind the recording, which has {duration:.2f} s", _HINT)
        before = max(before, segment.end)
        if any(c.isalnum() for c in segment.text):
            with_text.append(replace(segment, start=min(segment.start, duration), end=min(segment.end, duration)))
    return with_text


def whisper_segments(text: str) -> list[Segment] | None:
    """The segments of a text with Whisper's timestamp tokens, ``<|0.00|> Hello.<|1.20|>``; None without them."""
    parts = _TIME.split(text)
    if len(parts) < 4:  # text, time, text, time, text
        return None
    times = [float(time) for time in parts[1::2]]
    texts = [plain_text(part) for part in parts[2::2]]
    return [Segment(start, end, words) for start, end, words in zip(times, times[1:], texts, strict=False) if words]


def plain_text(text: str) -> str:
    """``text`` without Whisper's tokens."""
    return " ".join(_TOKEN.sub(" ", text).split()) if "<|" in text else text.strip()


def _rows(value: object) -> list[Mapping[str, Any]]:
    if isinstance(value, Mapping):  # of lists, as older versions of datasets return a list of structs
        value = [dict(zip(value, row, strict=True)) for row in zip(*value.values(), strict=True)]
    if not isinstance(value, list | tuple) or not all(isinstance(row, Mapping) for row in value):
        raise InvalidArgumentError(f"segments {value!r:.60} are not a list of dictionaries", _HINT)
    return list(value)


def _segment(i: int, row: Mapping[str, Any], last_end: float | None) -> Segment:
    pair = row.get("timestamp") or row.get("timestamps") or (row.get("start"), row.get("end"))
    name = next((name for name in _TEXTS if name in row), None)
    if name is None or not isinstance(pair, list | tuple) or len(pair) != 2:
        raise InvalidArgumentError(f"segment {i} has {listed(row) or 'nothing'}, not its times and text", _HINT)
    start, end = pair[0], last_end if pair[1] is None else pair[1]
    if not (_is_number(start) and _is_number(end)):
        raise InvalidArgumentError(
            f"segment {i} has the times {pair[0]!r} and {pair[1]!r}, which are not numbers", _HINT
        )
    return Segment(float(start), float(end), str(row[name] or ""))


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def text_slices(text: str, parts: Sequence[str]) -> list[str] | None:
    """``text`` in as many parts as there are in ``parts``, which joined by spaces are ``text`` but for its spacing.

    Capitals, punctuation, accents and spaces may differ, so a cleaned transcript goes with segments as they were
    written. None where letters or digits differ.
    """
    places = [(i, letter) for i, c in enumerate(text) for letter in _letters(c)]
    wanted = ["".join(map(_letters, part)) for part in parts]
    if "".join(letter for _, letter in places) != "".join(wanted):
        return None
    counts = list(accumulate(map(len, wanted)))
    starts = [places[count][0] if count < len(places) else len(text) for count in counts[:-1]]
    cuts = [0, *(_word_start(text, start) for start in starts), len(text)]
    return [text[a:b].strip() for a, b in pairwise(cuts)]


def joined(parts: Sequence[str]) -> str:
    """Join segments to a text; words of transformers' pipeline include their spaces."""
    spaced = any(part[:1].isspace() for part in parts[1:])
    return " ".join(("" if spaced else " ").join(parts).split())


def _letters(character: str) -> str:
    if character.isascii():
        return character.lower() if character.isalnum() else ""
    return "".join(c for c in unicodedata.normalize("NFKD", character).casefold() if c.isalnum())


def _word_start(text: str, place: int) -> int:
    """The start of the word at ``place`` with leading punctuation, such as an opening quotation mark."""
    start = place
    while start and not text[start - 1].isspace() and not text[start - 1].isalnum():
        start -= 1
    return start if not start or text[start - 1].isspace() else place


def subtitles_beside(audio: str | os.PathLike[str]) -> Path | None:
    """``talk.srt`` or ``talk.vtt`` (or ``talk.flac.srt``) beside ``talk.flac``; None where there is none."""
    path = Path(audio)
    names = [path.with_suffix(ending) for ending in ENDINGS] + [path.with_name(path.name + e) for e in ENDINGS]
    return next((name for name in names if name.is_file()), None)


def read_subtitles(path: Path) -> list[Segment]:
    """The cues of a file in order, without markup. Raises ``CorruptFileError`` for one that holds none."""
    try:
        text = from_storage(path, lambda: path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        raise CorruptFileError(f"{path} cannot be read as subtitles: {error}", "write it as UTF-8") from error
    blocks = re.split(r"\n\s*\n", text.replace("\r\n", "\n").replace("\r", "\n"))
    cues = [cue for block in blocks if (cue := _cue(block)) is not None]
    if not cues:
        raise CorruptFileError(
            f"{path} holds no cue with times", "a cue is a line 00:00:01,000 --> 00:00:02,500, and lines of text"
        )
    return cues


def _cue(block: str) -> Segment | None:
    lines = block.split("\n")
    for i, line in enumerate(lines):
        times = _CUE.match(line)
        if times:
            caption = html.unescape(_TAG.sub("", " ".join(lines[i + 1 :])))
            return Segment(_seconds(times[1]), _seconds(times[2]), " ".join(caption.split()))
    return None


def _seconds(time: str) -> float:
    seconds = 0.0
    for part in time.replace(",", ".").split(":"):
        seconds = 60 * seconds + float(part)
    return round(seconds, 6)


@dataclass(frozen=True)
class Group:
    """The segments ``[first, last)`` of a recording, and the piece from ``start`` to ``end`` that holds them."""

    start: float
    end: float
    first: int
    last: int


def grouped(
    segments: Sequence[Segment],
    edges: Sequence[float],
    limit_s: float,
    fits: Callable[[int, int], bool] = lambda first, last: True,
) -> tuple[list[Group], list[int]]:
    """Group neighbouring segments into pieces of at most ``limit_s``, cut at the widest pause of their second half.

    Neighbouring groups share an edge, so that together they cover the recording. Only where the pauses around a single
    segment exceed the limit, half a second of each is kept. ``edges`` are where to cut: the start of the recording, a
    time between every two segments, and its end. ``fits`` is whether the texts of the segments ``[first, last)`` are
    short enough for one piece. Returns the groups, and the indices of segments that are too long for any.
    """
    groups: list[Group] = []
    too_long: list[int] = []
    first = 0
    while first < len(segments):
        if segments[first].end - segments[first].start > limit_s or not fits(first, first + 1):
            too_long.append(first)
            first += 1
            continue
        last = first + 1
        while last < len(segments) and edges[last + 1] - edges[first] <= limit_s and fits(first, last + 1):
            last += 1
        if last < len(segments):
            ends = [i for i in range(first + 1, last + 1) if 2 * (edges[i] - edges[first]) >= limit_s]
            last = max(ends, key=lambda i: (segments[i].start - segments[i - 1].end, i), default=last)
        groups.append(_group(segments, edges, limit_s, first, last))
        first = last
    return groups, too_long


def middles(segments: Sequence[Segment], duration: float) -> list[float]:
    """The edges for ``grouped`` that lie in the middle of the pauses."""
    between = [round((a.end + b.start) / 2, 6) for a, b in pairwise(segments)]
    return [0.0, *between, duration]


def _group(segments: Sequence[Segment], edges: Sequence[float], limit_s: float, first: int, last: int) -> Group:
    start, end = edges[first], edges[last]
    if end - start > limit_s:
        spoken_from, spoken_to = segments[first].start, segments[last - 1].end
        margin = min(_MARGIN_S, (limit_s - (spoken_to - spoken_from)) / 2)
        start, end = max(start, round(spoken_from - margin, 6)), min(end, round(spoken_to + margin, 6))
    return Group(start, end, first, last)


def split_range(path: str, *, file: bool = True) -> tuple[str, tuple[float, float] | None]:
    """Split ``path`` into a recording and the seconds to read of it, None for all of it.

    ``file``: the path of a file on disk, whose own name may look like a range.
    """
    match = _RANGE.fullmatch(path) if "#t=" in path else None
    if match is None or (file and os.path.exists(path)):  # noqa: PTH110 (this runs for every clip)
        return path, None
    return match[1], (float(match[2]), float(match[3]))


def named_range(path: str, start: float, end: float, *, file: bool = True) -> str:
    """The name of ``start`` to ``end`` in seconds, to the microsecond, of a recording or of a piece of one."""
    if not 0 <= start < end or not math.isfinite(end):
        raise InvalidArgumentError(f"{path} has no piece from {start} s to {end} s", "pass seconds, the start first")
    recording, within = split_range(path, file=file)
    first = within[0] if within else 0.0
    return f"{recording}#t={_shortest(first + start)},{_shortest(first + end)}"


def part_of(audio: object, start: float, end: float) -> Any:
    """Select ``start`` to ``end`` in seconds of ``audio``, which is decoded by ``load_audio`` only later."""
    clip = StoredClip.of(audio)
    if clip.kind in ("array", "decoder"):
        part = {"array": _samples(clip.value, start, end, clip.rate or SAMPLING_RATE)}
    else:
        in_memory = clip.kind == "bytes"
        part = {clip.kind: clip.value} if in_memory else {}
        part["path"] = named_range(clip.path, start, end, file=not in_memory)
    if isinstance(audio, Mapping):
        return {**audio, **part}
    return part if clip.kind == "bytes" else next(iter(part.values()))


def _samples(array: Any, start: float, end: float, rate: Any) -> Any:
    if is_array(array) and len(array.shape) == 2 and array.shape[0] < array.shape[1]:
        return array[:, round(start * rate) : round(end * rate)]
    return array[round(start * rate) : round(end * rate)]


def _shortest(value: float) -> str:
    return f"{value:.6f}".rstrip("0").rstrip(".")
