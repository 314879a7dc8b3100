"""Lengths of clips, and notes on unreadable clips, which are left out, and on silent ones."""

from __future__ import annotations

import math
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
from ..loading.cache_filling import usable_cores
from ..loading.channels import is_silent
from ..view.units import plural
from .speech_data import column, keep_rows, with_column

_NAMED = 5  # bad clips that a note names
_DECODED_H = 10  # hours of audio that are decoded to see whether that works, by default
_AT_ONCE = 256  # clips handed to the threads


def measured(dataset: Any, noun: str, check_audio: bool | None, progress: bool) -> tuple[Any, list[str]]:
    """``dataset`` with the column ``length`` and without bad clips, and notes on those and on sampling rates.

    Lengths come from headers. ``check_audio`` decodes every clip, too; None does so where there are few hours of it.
    Clips that are silent, or whose channels cancel each other, are then noted.
    """
    result = scan_audio(dataset, allow_empty=True, progress=progress)
    lengths = [0 if math.isnan(s) else round(s * SAMPLING_RATE) for s in result.durations]
    bad = {row: f"{result.clips[row].path}: {result.clips[row].error or 'it holds no audio'}"
           for row, length in enumerate(lengths) if length <= 0}  # fmt: skip
    with_lengths, heard = with_column(dataset, "length", lengths), dict[int, _Heard]()
    if check_audio or (check_audio is None and sum(lengths) <= _DECODED_H * 3600 * SAMPLING_RATE):
        heard = _heard(with_lengths, [row for row in range(len(lengths)) if row not in bad], progress)
        bad |= {row: clip.problem for row, clip in heard.items() if clip.problem}
    notes = []
    if bad:
        named = listed((shortened(text) for _, text in sorted(bad.items())), "; ", _NAMED)
        count = f"{len(bad)} of {plural(len(lengths), noun)} cannot be read and"
        notes.append(f"{count} {'is' if len(bad) == 1 else 'are'} left out: {named}")
    notes += _levels(heard, result, noun)
    counts = sorted((int(rate), count) for rate, count in result.profile.sample_rates.items())
    others = [(rate, count) for rate, count in counts if rate not in (0, SAMPLING_RATE)]
    if others:
        rates = listed(f"{plural(count, noun)} of {rate} Hz" for rate, count in others)
        notes.append(f"resampled to {SAMPLING_RATE} Hz when read: {rates}")
    return keep_rows(with_lengths, [row for row in range(len(lengths)) if row not in bad]), notes


def _levels(heard: dict[int, _Heard], result: ScanResult, noun: str) -> Iterator[str]:
    def named(rows: list[int]) -> str:
        return listed((f"row {row} ({shortened(result.clips[row].path)})" for row in rows), shown=_NAMED)

    silent = [row for row, clip in heard.items() if clip.silent]
    cancelling = [row for row, clip in heard.items() if clip.one_channel]
    if silent:
        yield f"nothing is heard in {plural(len(silent), noun)}, which teach nothing: leave out {named(silent)}"
    if cancelling:
        yield (
            f"one channel is taken of {plural(len(cancelling), noun)} whose channels cancel each other: "
            f"{named(cancelling)}"
        )


@dataclass(frozen=True)
class _Heard:
    problem: str = ""
    silent: bool = False
    one_channel: bool = False


def _heard(dataset: Any, rows: list[int], progress: bool) -> dict[int, _Heard]:
    heard: dict[int, _Heard] = {}
    with (
        ProgressBar("Checking audio", "clip", len(rows), progress) as advance,
        ThreadPoolExecutor(usable_cores()) as threads,
    ):
        for start in range(0, len(rows), _AT_ONCE):
            chunk = rows[start : start + _AT_ONCE]
            clips = column(dataset.select(chunk), "audio")
            heard |= dict(zip(chunk, threads.map(_decoded, clips), strict=True))
            advance(start + len(chunk), len(rows))
    return heard


def _decoded(audio: Any) -> _Heard:
    try:
        clip = load_clip(audio)
    except StorageError:
        raise
    except AsrConfigError as error:
        return _Heard(error.message)
    return _Heard(silent=is_silent(clip.samples), one_channel=clip.one_channel)
