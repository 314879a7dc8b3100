"""Timed segments of a recording: columns of segments, words or chunks, and Whisper's timestamp tokens."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .._base.errors import InvalidArgumentError
from .._base.listing import listed

SEGMENTS = "segments"  # the column that has them in data ready to train on, as JSON
SEGMENT_COLUMNS = ("segments", "chunks", "words", "utterances", "timestamps")
_TEXTS = ("text", "word", "transcript", "sentence")
_TIME = re.compile(r"<\|(\d+(?:\.\d+)?)\|>")
_TOKEN = re.compile(r"<\|[^|<>]*\|>")
_OVERLAP_S = 0.05  # of neighbours: times are rounded
_BEYOND_S = 0.5  # the end of the last one behind that of the audio
_HINT = "write start and end in seconds, in order: [{'start': 0.0, 'end': 2.5, 'text': '…'}, …]"


@dataclass(frozen=True)
class Segment:
    """``text`` that is said from ``start`` to ``end`` in seconds; ``score`` is an alignment's confidence, 0 to 1."""

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


def _rows(value: Any) -> list[Mapping[str, Any]]:
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
    start: Any = pair[0]
    end: Any = last_end if pair[1] is None else pair[1]
    if not (_is_number(start) and _is_number(end)):
        raise InvalidArgumentError(
            f"segment {i} has the times {pair[0]!r} and {pair[1]!r}, which are not numbers", _HINT
        )
    return Segment(float(start), float(end), str(row[name] or ""))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
