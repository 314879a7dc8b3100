"""Transcripts that say when what is said: the column ``segments`` beside ``text``, as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from ..segmentation.segments import SEGMENTS, plain_text, whisper_segments
from ..view.units import plural
from .speech_data import column, with_column


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
