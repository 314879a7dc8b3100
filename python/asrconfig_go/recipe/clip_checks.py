"""Lengths of clips; which cannot be read, those are left out with their names; and in which nothing is heard."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from .._base.defaults import SAMPLING_RATE
from .._base.errors import AsrConfigError, StorageError
from .._base.listing import listed, shortened
from .._base.progress import ProgressBar
from ..data.scan import ScanResult, scan_audio
from ..loading.audio import load_clip
from ..loading.channels import is_silent
from ..view.units import plural
from .speech_data import column, keep_rows, with_column

_NAMED = 5  # bad clips that a note names
_DECODED_H = 10  # hours of audio that are decoded to see whether that works, by default
_AT_ONCE = 256  # clips handed to the threads


def measured(dataset: Any, what: str, check_audio: bool | None, progress: bool) -> tuple[Any, list[str]]:
    """``dataset`` with the column ``length`` and without bad clips, and notes on those and on sampling rates.

    Lengths come from headers. ``check_audio`` decodes every clip, too; None does so where there are few hours of it.
    Clips that are silent, or whose channels cancel each other, are then noted.
    """
    result = scan_audio(dataset, allow_empty=True, progress=progress)
    lengths = [0 if math.isnan(s) else round(s * SAMPLING_RATE) for s in result.durations]
    bad = {row: f"{result.clips[row].path}: {result.clips[row].error or 'it holds no audio'}"
           for row, length in enumerate(lengths) if length <= 0}  # fmt: skip
    found, heard = with_column(dataset, "length", lengths), dict[int, _Heard]()
    if check_audio or (check_audio is None and sum(lengths) <= _DECODED_H * 3600 * SAMPLING_RATE):
        heard = _heard(found, [row for row in range(len(lengths)) if row not in bad], progress)
        bad |= {row: clip.problem for row, clip in heard.items() if clip.problem}
    notes = []
    if bad:
        named = listed((shortened(text) for _, text in sorted(bad.items())), "; ", _NAMED)
        count = f"{len(bad)} of {plural(len(lengths), what)} cannot be read and"
        notes.append(f"{count} {'is' if len(bad) == 1 else 'are'} left out: {named}")
    notes += _levels(heard, result, what)
    counts = {int(rate): count for rate, count in result.profile.sample_rates.items()}
    others = {rate: counts[rate] for rate in sorted(counts) if rate not in (0, SAMPLING_RATE)}
    if others:
        rates = listed(f"{plural(count, what)} of {rate} Hz" for rate, count in others.items())
        notes.append(f"resampled to {SAMPLING_RATE} Hz when read: {rates}")
    return keep_rows(found, [row for row in range(len(lengths)) if row not in bad]), notes


def _levels(heard: dict[int, _Heard], result: ScanResult, what: str) -> Iterator[str]:
    """Sentences on clips in which nothing, or in whose mean nothing is heard."""

    def named(rows: list[int]) -> str:
        return listed((f"row {row} ({shortened(result.clips[row].path)})" for row in rows), shown=_NAMED)

    silent = [row for row, clip in heard.items() if clip.silent]
    cancelling = [row for row, clip in heard.items() if clip.one_channel]
    if silent:
        yield f"nothing is heard in {plural(len(silent), what)}, which teach nothing: leave out {named(silent)}"
    if cancelling:
        yield (
            f"one channel is taken of {plural(len(cancelling), what)} whose channels cancel each other: "
            f"{named(cancelling)}"
        )


@dataclass(frozen=True)
class _Heard:
    """What decoding a clip shows: why it cannot be used, or what is odd about its sound."""

    problem: str = ""
    silent: bool = False
    one_channel: bool = False


def _heard(dataset: Any, rows: list[int], progress: bool) -> dict[int, _Heard]:
    """By row, of clips whose header is right."""
    heard: dict[int, _Heard] = {}
    with ProgressBar("Checking audio", "clip", len(rows), progress) as advance, ThreadPoolExecutor(_cores()) as threads:
        for start in range(0, len(rows), _AT_ONCE):
            taken = rows[start : start + _AT_ONCE]
            clips = column(dataset.select(taken), "audio")
            heard |= dict(zip(taken, threads.map(_decoded, clips), strict=True))
            advance(start + len(taken), len(rows))
    return heard


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _decoded(audio: Any) -> _Heard:
    try:
        clip = load_clip(audio)
    except StorageError:
        raise
    except AsrConfigError as error:
        return _Heard(error.message)
    return _Heard(silent=is_silent(clip.samples), one_channel=clip.one_channel)
