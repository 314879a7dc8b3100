"""Quiet places of a recording, by the level of its sound in frames of 20 ms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..loading import load_audio
from ..loading.clip_ranges import part_of
from ..loading.padded_clips import Array

FRAME_S = 0.02
_RATE = 16_000
_BLOCK_S = 120.0  # read at once: an hour of audio takes no more memory than two minutes
_SMOOTHED = 5  # frames whose mean is compared: a stop consonant is no pause
_FULL = 0.8  # of the limit that a piece takes on average
_SILENT = 1e-4  # of the power of loud speech, 40 dB below it
_ABOVE_FLOOR = 4.0  # times the power of the quietest frames, 6 dB


def levels_of(audio: Any, duration: float) -> Array:
    """The power of each frame, smoothed over 0.1 s, of ``audio`` as ``load_audio`` takes it."""
    size = round(FRAME_S * _RATE)
    levels = []
    for start in np.arange(0.0, duration, _BLOCK_S):
        end = min(duration, start + _BLOCK_S)
        if end - start < FRAME_S:
            break
        block = load_audio(part_of(audio, float(start), float(end)), sample_rate=_RATE)
        frames = block[: len(block) // size * size].reshape(-1, size)
        levels.append(np.square(frames, dtype=np.float32).mean(1))
    power: Array = np.concatenate(levels) if levels else np.zeros(0, np.float32)
    padded = np.pad(power, _SMOOTHED // 2, mode="edge") if len(power) else power
    return np.convolve(padded, np.full(_SMOOTHED, 1 / _SMOOTHED), "valid") if len(power) else power


def quiet_power(levels: Array) -> float:
    """The power up to which a frame counts as silent."""
    if not len(levels):
        return 0.0
    floor, loud = (float(np.quantile(levels, share)) for share in (0.05, 0.95))
    return max(_ABOVE_FLOOR * floor if _ABOVE_FLOOR * floor < loud / 10 else 0.0, _SILENT * loud)


def quietest(levels: Array, start: float, end: float) -> float:
    """The middle of the quietest frame from ``start`` to ``end`` in seconds, or of both where there is none between."""
    first, last = math.ceil(start / FRAME_S), math.floor(end / FRAME_S)
    last = min(last, len(levels))
    if last <= first:
        return round((start + end) / 2, 6)
    return round((first + int(np.argmin(levels[first:last])) + 0.5) * FRAME_S, 6)


def silent_cuts(levels: Array, duration: float, limit_s: float) -> tuple[list[float], int]:
    """Where to cut a recording so that no piece is over ``limit_s``, and how many of these places are not silent.

    A cut is the silent frame nearest to an even division, else the quietest between a tenth of the piece and the limit.
    """
    cuts: list[float] = []
    loud, start, quiet = 0, 0.0, quiet_power(levels)
    while duration - start > limit_s:
        even = (duration - start) / math.ceil((duration - start) / (_FULL * limit_s))
        first, last = _frames(levels, start + even / 10, start + limit_s)
        window = levels[first:last]
        if not len(window):  # a limit below some frames
            place = start + even
        else:
            centres = (np.arange(first, last) + 0.5) * FRAME_S
            silent = np.flatnonzero(window <= quiet)
            loud += not len(silent)
            distances = np.abs(centres - (start + even))
            at = silent[np.argmin(distances[silent])] if len(silent) else np.argmin(window)
            place = float(centres[at])
        start = round(place, 6)
        cuts.append(start)
    return cuts, loud


def _frames(levels: Array, start: float, end: float) -> tuple[int, int]:
    return math.ceil(start / FRAME_S - 0.5), min(len(levels), math.floor(end / FRAME_S - 0.5) + 1)
