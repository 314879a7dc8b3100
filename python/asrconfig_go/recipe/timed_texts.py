"""Transcripts that say when what is said: the column ``segments`` beside ``text``, as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ..segmentation.segments import SEGMENT_COLUMNS, plain_text, whisper_segments
from ..view.units import plural
from .speech_data import column, with_column

SEGMENTS = "segments"


def segment_column(columns: Sequence[str], *taken: str) -> str | None:
    """The column with segments, words or chunks, by its usual names."""
    return next((name for name in SEGMENT_COLUMNS if name in columns and name not in taken), None)


def as_json(value: Any) -> str | None:
    """Segments in whatever form, for a column that takes all forms; None for none."""
    if value is None or isinstance(value, str):
        return value or None
    return json.dumps(value, ensure_ascii=False, default=str) if len(value) else None


def without_tokens(dataset: Any) -> tuple[Any, list[str]]:
    """With Whisper's timestamp tokens moved from the transcripts to the column ``segments``, and a note on that."""
    texts = column(dataset, "text")
    timed = {row: found for row, text in enumerate(texts) if text and (found := whisper_segments(text)) is not None}
    if not timed:
        return dataset, []
    there = column(dataset, SEGMENTS) if SEGMENTS in dataset.column_names else [None] * len(texts)
    for row, found in timed.items():
        texts[row] = plain_text(texts[row])
        there[row] = there[row] or json.dumps([asdict(each) for each in found], ensure_ascii=False)
    note = f"timestamp tokens were taken out of {plural(len(timed), 'transcript')}"
    return with_column(with_column(dataset, "text", texts), SEGMENTS, there), [note]
