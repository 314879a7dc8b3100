"""Lengths of clips, and which cannot be read: those are left out with their names."""

from __future__ import annotations

import math
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from .._base.defaults import SAMPLING_RATE
from .._base.errors import AsrConfigError
from .._base.progress import ProgressBar
from ..data.scan import scan_audio
from ..view.units import plural
from .speech_data import column, keep_rows, with_column

_NAMED = 5  # bad clips that a note names
_DECODED_H = 10  # hours of audio that are decoded to see whether that works, by default
_AT_ONCE = 256  # clips handed to the threads


def measured(dataset: Any, what: str, check_audio: bool | None, progress: bool) -> tuple[Any, list[str]]:
    """``dataset`` with the column ``length`` and without bad clips, and notes on those and on sampling rates.

    Lengths come from headers. ``check_audio`` decodes every clip, too; None does so where there are few hours of it.
    """
    result = scan_audio(dataset, allow_empty=True, progress=progress)
    lengths = [0 if math.isnan(s) else round(s * SAMPLING_RATE) for s in result.durations]
    bad = {row: f"{result.clips[row].path}: {result.clips[row].error or 'it holds no audio'}"
           for row, length in enumerate(lengths) if length <= 0}  # fmt: skip
    found = with_column(dataset, "length", lengths)
    if check_audio or (check_audio is None and sum(lengths) <= _DECODED_H * 3600 * SAMPLING_RATE):
        bad |= _undecodable(found, [row for row in range(len(lengths)) if row not in bad], progress)
    notes = []
    if bad:
        named = "; ".join([text for _, text in sorted(bad.items())][:_NAMED])
        more = f"; and {len(bad) - _NAMED} more" if len(bad) > _NAMED else ""
        count = f"{len(bad)} of {plural(len(lengths), what)} cannot be read and"
        notes.append(f"{count} {'is' if len(bad) == 1 else 'are'} left out: {named}{more}")
    counts = {int(rate): count for rate, count in result.profile.sample_rates.items()}
    others = {rate: counts[rate] for rate in sorted(counts) if rate not in (0, SAMPLING_RATE)}
    if others:
        rates = ", ".join(f"{plural(count, what)} of {rate} Hz" for rate, count in others.items())
        notes.append(f"resampled to {SAMPLING_RATE} Hz when read: {rates}")
    return keep_rows(found, [row for row in range(len(lengths)) if row not in bad]), notes


def _undecodable(dataset: Any, rows: list[int], progress: bool) -> dict[int, str]:
    """Why, by the rows of clips whose header is right and whose audio is not."""
    bad: dict[int, str] = {}
    with ProgressBar("Checking audio", "clip", len(rows), progress) as advance, ThreadPoolExecutor(_cores()) as threads:
        for start in range(0, len(rows), _AT_ONCE):
            taken = rows[start : start + _AT_ONCE]
            clips = column(dataset.select(taken), "audio")
            bad |= {row: why for row, why in zip(taken, threads.map(_problem, clips), strict=True) if why}
            advance(start + len(taken), len(rows))
    return bad


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _problem(audio: Any) -> str:
    from ..loading import load_audio

    try:
        load_audio(audio)
    except AsrConfigError as error:
        return error.message
    return ""
