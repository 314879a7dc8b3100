"""Lengths of clips without decoding them; those that cannot be read are left out with their names."""

from __future__ import annotations

import math
from typing import Any

from ..dataset import scan_audio
from ..display import plural
from .speech import SAMPLE_RATE, keep_rows, with_column

_NAMED = 5  # bad clips that a note names


def measured(dataset: Any, what: str, progress: bool) -> tuple[Any, list[str]]:
    """``dataset`` with the column ``length`` and without bad clips, and notes on those and on sampling rates."""
    result = scan_audio(dataset, allow_empty=True, progress=progress)
    seconds = result.durations
    lengths = [0 if math.isnan(s) else round(s * SAMPLE_RATE) for s in seconds]
    good = [row for row, length in enumerate(lengths) if length > 0]
    notes = []
    if len(good) < len(lengths):
        bad = [result.clips[row] for row in (i for i, length in enumerate(lengths) if length <= 0)]
        named = "; ".join(f"{clip.path}: {clip.error or 'it holds no audio'}" for clip in bad[:_NAMED])
        more = f"; and {len(bad) - _NAMED} more" if len(bad) > _NAMED else ""
        notes.append(f"{len(bad)} of {plural(len(lengths), what)} cannot be read and are left out: {named}{more}")
    others = {rate: count for rate, count in result.profile.sample_rates.items() if int(rate) != SAMPLE_RATE}
    if others:
        rates = ", ".join(f"{plural(count, 'clip')} of {rate} Hz" for rate, count in others.items())
        notes.append(f"resampled to {SAMPLE_RATE} Hz when read: {rates}")
    return keep_rows(with_column(dataset, "length", lengths), good), notes
