"""How one long clip is cut: by timestamps, by an alignment, or at silences."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .._core.checks import CutRule
from .._core.defaults import SAMPLING_RATE
from .._core.output import listed
from ..data.clip_ranges import part_of, split_range
from ..data.segments import (
    Segment,
    checked_segments,
    joined,
    plain_text,
    read_segments,
    read_subtitles,
    subtitles_beside,
    text_slices,
    whisper_segments,
)
from ..errors import AsrConfigError, StorageError
from .audio import load_audio
from .ctc_aligner import CTCAligner
from .decoding import Array

_MARGIN_S = 0.5  # kept of a pause that does not fit into the piece beside it
FRAME_S = 0.02
_BLOCK_S = 120.0  # read at once: an hour of audio takes no more memory than two minutes
_SMOOTHED = 5  # frames whose mean is compared: a stop consonant is no pause
_FULL = 0.8  # of the limit that a piece takes on average
_SILENT = 1e-4  # of the power of loud speech, 40 dB below it
_ABOVE_FLOOR = 4.0  # times the power of the quietest frames, 6 dB
_TOO_LONG = {
    "timestamps": "a single segment over the limit",
    "alignment": "words without a pause, over the limit",
    "silence": "",
}
_PAUSE_S = 0.2  # between words of an alignment that may be parted; a CTC model places letters to some hundredths


@dataclass(frozen=True)
class Group:
    """The segments ``first`` to before ``last``, as the piece from ``start`` to ``end`` in seconds."""

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
    """Groups in order, and the segments that are too long for one.

    ``edges`` are where to cut: from the start of the recording over a place between each two segments to its end, one
    more than there are segments. Neighbouring groups share an edge, so together they are the recording; but where the
    pause around a single segment does not fit, half a second of it is kept. ``fits`` tells whether the texts of the
    segments ``first`` to before ``last`` are short enough.
    """
    groups: list[Group] = []
    too_long: list[int] = []
    first = 0
    while first < len(segments):
        if segments[first].end - segments[first].start > limit_s or not fits(first, first + 1):
            too_long.append(first)
            first += 1
            continue
        lasts = [first + 1]
        for last in range(first + 2, len(segments) + 1):
            if edges[last] - edges[first] > limit_s or not fits(first, last):
                break
            lasts.append(last)
        last = lasts[-1]
        if last < len(segments):  # end in the widest pause of the second half of the limit
            late = [i for i in lasts if 2 * (edges[i] - edges[first]) >= limit_s]
            last = max(late, key=lambda i: (segments[i].start - segments[i - 1].end, i), default=last)
        groups.append(_group(segments, edges, limit_s, first, last))
        first = last
    return groups, too_long


def middles(segments: Sequence[Segment], duration: float) -> list[float]:
    """Edges in the middle of the pauses."""
    between = [round((a.end + b.start) / 2, 6) for a, b in itertools.pairwise(segments)]
    return [0.0, *between, duration]


def _group(segments: Sequence[Segment], edges: Sequence[float], limit_s: float, first: int, last: int) -> Group:
    start, end = edges[first], edges[last]
    if end - start > limit_s:
        spoken_from, spoken_to = segments[first].start, segments[last - 1].end
        margin = min(_MARGIN_S, (limit_s - (spoken_to - spoken_from)) / 2)
        start, end = max(start, round(spoken_from - margin, 6)), min(end, round(spoken_to + margin, 6))
    return Group(start, end, first, last)


def levels_of(audio: object, duration: float) -> Array:
    """The power of each frame, smoothed over 0.1 s, of ``audio`` as ``load_audio`` takes it."""
    size = round(FRAME_S * SAMPLING_RATE)
    levels = []
    for start in np.arange(0.0, duration, _BLOCK_S):
        end = min(duration, start + _BLOCK_S)
        if end - start < FRAME_S:
            break
        block = load_audio(part_of(audio, float(start), float(end)), sample_rate=SAMPLING_RATE)
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


@dataclass(frozen=True)
class Piece:
    """``text`` from ``start`` to ``end`` in seconds of a clip; no text where the clip has none."""

    start: float
    end: float
    text: str


@dataclass(frozen=True)
class CutClip:
    """A clip in pieces, by which rule, and the seconds of it that no piece has, by why."""

    rule: CutRule
    pieces: list[Piece]
    lost: dict[str, float] = field(default_factory=dict)
    loud: int = 0
    """Cuts that are not at a silence, where there was none near enough."""


@dataclass(frozen=True)
class CutSettings:
    """``labels`` counts the tokens of a text, of which a piece may have ``max_labels``."""

    limit_s: float
    align: CTCAligner | None = None
    labels: Callable[[str], int] | None = None
    max_labels: int | None = None

    def fits(self, text: str) -> bool:
        """Whether a piece may have this text."""
        return self.labels is None or self.max_labels is None or self.labels(text) <= self.max_labels


def cut_clip(audio: object, duration: float, text: str, segments: Any, settings: CutSettings) -> CutClip | str:
    """The pieces of ``audio``, or why it is not cut. ``segments`` is the value of such a column, or None."""
    try:
        timed = _timed(audio, duration, text, segments)
        texts = None if timed is None else _texts(text, timed)
    except StorageError:
        raise
    except AsrConfigError as error:
        timed, texts, problem = None, None, error.message
    else:
        problem = "" if timed is None or texts else "its segments spell another text than its transcript"
    if timed and texts:
        return _in_groups("timestamps", timed, texts, middles(timed, duration), settings)
    spoken = plain_text(text)
    try:
        if not spoken and not problem:
            cuts, loud = silent_cuts(levels_of(audio, duration), duration, settings.limit_s)
            pieces = [Piece(a, b, "") for a, b in itertools.pairwise([0.0, *cuts, duration])]
            return CutClip("silence", pieces, loud=loud)
        if spoken and settings.align is not None:
            return _aligned(audio, duration, spoken, settings, settings.align)
    except StorageError:
        raise
    except AsrConfigError as error:
        return error.message
    return problem or "no timestamps for its text, and no model to align it with (align=)"


def _timed(audio: object, duration: float, text: str, segments: Any) -> list[Segment] | None:
    if segments is not None and len(segments):
        return read_segments(segments, duration)
    tokens = whisper_segments(text)
    if tokens is not None:
        return checked_segments(tokens, duration)
    file = subtitles_of(audio)
    return None if file is None else checked_segments(read_subtitles(file), duration)


def subtitles_of(audio: object) -> Path | None:
    """The subtitles of a file, not of a piece of one."""
    path = audio.get("path") if isinstance(audio, dict) else audio
    if not isinstance(path, str | Path) or split_range(str(path))[1] is not None:
        return None
    return subtitles_beside(path)


def _texts(text: str, timed: Sequence[Segment]) -> list[str] | None:
    """The texts of segments as the transcript spells them, or their own where there is no transcript."""
    own = [segment.text for segment in timed]
    transcript = plain_text(text)
    return text_slices(transcript, own) if transcript else own


def _in_groups(
    rule: CutRule, timed: Sequence[Segment], texts: Sequence[str], edges: Sequence[float], settings: CutSettings
) -> CutClip | str:
    groups, too_long = grouped(
        timed, edges, settings.limit_s, lambda first, last: settings.fits(joined(texts[first:last]))
    )
    lost = dict[str, float]()
    pieces: list[Piece] = []
    for group in groups:
        threshold = settings.align.min_confidence if settings.align and rule == "alignment" else 0.0
        if _confidence(timed[group.first : group.last]) < threshold:
            _add(lost, f"aligned with a confidence below {threshold:g}", group.end - group.start)
        else:
            pieces.append(Piece(group.start, group.end, joined(texts[group.first : group.last])))
    for i in too_long:
        _add(lost, _TOO_LONG[rule], edges[i + 1] - edges[i])
    pauses = edges[-1] - edges[0] - sum(lost.values()) - sum(piece.end - piece.start for piece in pieces)
    if pauses > 1e-5:
        _add(lost, "long pauses", pauses)
    return CutClip(rule, pieces, lost) if pieces else f"nothing left: {listed(lost)}"


def _add(lost: dict[str, float], reason: str, seconds: float) -> None:
    lost[reason] = lost.get(reason, 0.0) + seconds


def _aligned(audio: object, duration: float, text: str, settings: CutSettings, aligner: CTCAligner) -> CutClip | str:
    units = _between_pauses(aligner.words(audio, duration, text))
    levels = levels_of(audio, duration)
    between = [quietest(levels, a.end, b.start) for a, b in itertools.pairwise(units)]
    return _in_groups("alignment", units, [unit.text for unit in units], [0.0, *between, duration], settings)


def _between_pauses(words: Sequence[Segment]) -> list[Segment]:
    """Words without a pause between them as one segment, which scores their mean."""
    runs: list[list[Segment]] = []
    for word in words:
        if runs and word.start - runs[-1][-1].end < _PAUSE_S:
            runs[-1].append(word)
        else:
            runs.append([word])
    return [Segment(run[0].start, run[-1].end, " ".join(word.text for word in run), _mean(run)) for run in runs]


def _confidence(units: Sequence[Segment]) -> float:
    """The mean score of the worse half, so that text beyond the end of the speech is noticed."""
    half = (len(units) + 1) // 2
    means = [mean for part in (units[:half], units[half:]) if (mean := _mean(part)) is not None]
    return min(means, default=1.0)


def _mean(run: Sequence[Segment]) -> float | None:
    scores = [word.score for word in run if word.score is not None]
    return sum(scores) / len(scores) if scores else None
