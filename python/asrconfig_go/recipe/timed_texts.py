"""Transcripts with timestamps: the column ``segments`` beside ``text``, as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from ..segmentation.segments import SEGMENTS, plain_text, whisper_segments
from ..view.units import plural
from .speech_data import column, with_column


def without_tokens(dataset: Any) -> tuple[Any, list[str]]:
    """Move Whisper's timestamp tokens from the transcripts to the column ``segments``, and return a note."""
    texts = column(dataset, "text")
    timed = {row: segments for row, text in enumerate(texts) if (segments := whisper_segments(text or "")) is not None}
    if not timed:
        return dataset, []
    there = column(dataset, SEGMENTS) if SEGMENTS in dataset.column_names else [None] * len(texts)
    for row, segments in timed.items():
        texts[row] = plain_text(texts[row])
        there[row] = there[row] or json.dumps([asdict(segment) for segment in segments], ensure_ascii=False)
    note = f"timestamp tokens were taken out of {plural(len(timed), 'transcript')}"
    return with_column(with_column(dataset, "text", texts), SEGMENTS, there), [note]
