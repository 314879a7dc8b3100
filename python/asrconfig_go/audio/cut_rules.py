"""Cuts one long clip into pieces: by timestamps of its text, by a CTC alignment, or at silences where it has no text.

``cut_clip`` tries these rules in order, and ``long_clips`` calls it for each clip over the limit. It reads the audio
and the subtitles beside it, and writes nothing. Times are in seconds, rounded to the microsecond.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from .._core.output import listed
from .._core.settings import SAMPLING_RATE
from .._core.stored_clip import StoredClip
from ..data.segments import (
    Segment,
    checked_segments,
    grouped,
    joined,
    middles,
    part_of,
    plain_text,
    read_segments,
    read_subtitles,
    split_range,
    subtitles_beside,
    text_slices,
    whisper_segments,
)
from ..errors import AsrConfigError, StorageError
from .ctc_aligner import CTCAligner
from .decoding import Array, load_audio

CutRule = Literal["timestamps", "alignment", "silence"]
"""What decides where a clip over the limit is cut."""
_FRAME_S = 0.02
_BLOCK_S = 120.0  # audio is decoded in blocks of this length, so that an hour takes no more memory than two minutes
_SMOOTHED_FRAMES = 5  # a frame's power is the mean over these, so that a stop consonant does not count as a pause
_MEAN_FILL = 0.8  # the share of the limit that pieces between silences take on average
_FIRST_CUT = 0.1  # the share of an even piece before which no silence is searched, so that no piece is very short
_FLOOR_QUANTILE, _LOUD_QUANTILE = 0.05, 0.95  # of the power of frames: background noise, and loud speech
_SILENT_SHARE = 1e-4  # frames with less than this share of the power of loud speech are silent: 40 dB below it
_ABOVE_FLOOR = 4.0  # so are frames up to this multiple of the background noise: 6 dB above it
_FLOOR_SHARE = 0.1  # unless that multiple exceeds this share of loud speech: then even the quietest frames are speech
_MIN_PAUSE_S = 0.2  # an alignment is cut between words this far apart: CTC is exact to some hundredths of a second
_ROUNDING_S = 1e-5  # differences of rounded times below this are no pause
# Why a segment is in no piece, by the rule that made the segments.
_TOO_LONG: dict[CutRule, str] = {
    "timestamps": "a single segment over the limit",
    "alignment": "words without a pause, over the limit",
}


def levels_of(audio: object, duration: float) -> Array:
    """The power of each frame of 0.02 s of what ``load_audio`` decodes, smoothed over 0.1 s."""
    samples_per_frame = round(_FRAME_S * SAMPLING_RATE)
    blocks = []
    for start in np.arange(0.0, duration, _BLOCK_S):
        end = min(duration, start + _BLOCK_S)
        if end - start < _FRAME_S:
            break
        block = load_audio(part_of(audio, float(start), float(end)), sample_rate=SAMPLING_RATE)
        frames = block[: len(block) // samples_per_frame * samples_per_frame].reshape(-1, samples_per_frame)
        blocks.append(np.square(frames, dtype=np.float32).mean(1))
    power: Array = np.concatenate(blocks) if blocks else np.zeros(0, np.float32)
    if not len(power):
        return power
    padded = np.pad(power, _SMOOTHED_FRAMES // 2, mode="edge")
    return np.convolve(padded, np.full(_SMOOTHED_FRAMES, 1 / _SMOOTHED_FRAMES), "valid")


def _silence_threshold(levels: Array) -> float:
    """The power up to which a frame counts as silent."""
    if not len(levels):
        return 0.0
    floor, loud = (float(np.quantile(levels, share)) for share in (_FLOOR_QUANTILE, _LOUD_QUANTILE))
    above_noise = _ABOVE_FLOOR * floor
    return max(above_noise if above_noise < _FLOOR_SHARE * loud else 0.0, _SILENT_SHARE * loud)


def quietest(levels: Array, start: float, end: float) -> float:
    """The centre of the quietest frame from ``start`` to ``end``; the middle of the two where no frame lies there."""
    first, last = math.ceil(start / _FRAME_S), min(math.floor(end / _FRAME_S), len(levels))
    if last <= first:
        return round((start + end) / 2, 6)
    return round((first + int(np.argmin(levels[first:last])) + 0.5) * _FRAME_S, 6)


def silent_cuts(levels: Array, duration: float, limit_s: float) -> tuple[list[float], int]:
    """Cut a recording into pieces of at most ``limit_s``, at silences near an even division.

    A cut is at the silent frame nearest to the end of an even piece. Without a silent frame up to the limit, it is at
    the quietest one. Returns the times of the cuts in order, and how many of them are in no silence.
    """
    cuts: list[float] = []
    loud, start, threshold = 0, 0.0, _silence_threshold(levels)
    while duration - start > limit_s:
        remaining = duration - start
        even = remaining / math.ceil(remaining / (_MEAN_FILL * limit_s))
        first = math.ceil((start + _FIRST_CUT * even) / _FRAME_S - 0.5)  # of frames whose centres are within
        last = min(len(levels), math.floor((start + limit_s) / _FRAME_S - 0.5) + 1)
        window = levels[first:last]
        if not len(window):  # the limit is below some frames
            cut = start + even
        else:
            centres = (np.arange(first, last) + 0.5) * _FRAME_S
            silent = np.flatnonzero(window <= threshold)
            loud += not len(silent)
            distances = np.abs(centres - (start + even))
            frame = silent[np.argmin(distances[silent])] if len(silent) else np.argmin(window)
            cut = float(centres[frame])
        start = round(cut, 6)
        cuts.append(start)
    return cuts, loud


@dataclass(frozen=True)
class CutClip:
    """A clip that was cut.

    Attributes:
        rule: The rule by which it was cut.
        pieces: Its pieces in order, whose texts are empty where it has none.
        lost: Seconds of it that are in no piece, by reason.
        loud: Cuts in no silence, as there was none near enough.
    """

    rule: CutRule
    pieces: list[Segment]
    lost: dict[str, float] = field(default_factory=dict)
    loud: int = 0


@dataclass(frozen=True)
class CutSettings:
    """How long clips are cut.

    Attributes:
        limit_s: The longest piece in seconds.
        align: Aligns texts without timestamps; None to leave such clips uncut.
        labels: Counts the tokens of a text.
        max_labels: The most tokens that a piece may have; None for no limit.
    """

    limit_s: float
    align: CTCAligner | None = None
    labels: Callable[[str], int] | None = None
    max_labels: int | None = None

    def fits(self, text: str) -> bool:
        """Whether ``text`` is short enough for one piece."""
        return self.labels is None or self.max_labels is None or self.labels(text) <= self.max_labels


def cut_clip(audio: object, duration: float, text: str, segments: Any, settings: CutSettings) -> CutClip | str:
    """Cut ``audio`` by the first rule that applies: timestamps of its text, an alignment of it, or silences.

    ``text`` is its transcript, which may have Whisper's timestamps, ``segments`` the value of the dataset's column of
    segments. Returns the clip in pieces, or in words why it is not cut. Raises ``StorageError`` where its storage does
    not answer; any other error of reading is the reason returned.
    """
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
            pieces = [Segment(a, b, "") for a, b in itertools.pairwise([0.0, *cuts, duration])]
            return CutClip("silence", pieces, loud=loud)
        if spoken and settings.align is not None:
            return _aligned(audio, duration, spoken, settings, settings.align)
    except StorageError:
        raise
    except AsrConfigError as error:
        return error.message
    return problem or "no timestamps for its text, and no model to align it with (align=)"


def _timed(audio: object, duration: float, text: str, segments: Any) -> list[Segment] | None:
    """The segments of a column, of Whisper's timestamps in the text, or of subtitles; None where there are none."""
    if segments is not None and len(segments):
        return read_segments(segments, duration)
    tokens = whisper_segments(text)
    if tokens is not None:
        return checked_segments(tokens, duration)
    file = _subtitles_of(audio)
    return None if file is None else checked_segments(read_subtitles(file), duration)


def _subtitles_of(audio: object) -> Path | None:
    """The subtitles beside a file; None without any, and for a piece of a file, whose times they do not have."""
    path = StoredClip.of(audio).path
    return None if not path or split_range(path)[1] is not None else subtitles_beside(path)


def _texts(text: str, timed: Sequence[Segment]) -> list[str] | None:
    """The segments' texts as the transcript spells them; their own without a transcript; None if the two differ."""
    segment_texts = [segment.text for segment in timed]
    transcript = plain_text(text)
    return text_slices(transcript, segment_texts) if transcript else segment_texts


def _in_groups(
    rule: CutRule, timed: Sequence[Segment], texts: Sequence[str], edges: Sequence[float], settings: CutSettings
) -> CutClip | str:
    """Cut at the pauses between segments. Groups that an aligner is unsure of are left out."""
    groups, too_long = grouped(
        timed, edges, settings.limit_s, lambda first, last: settings.fits(joined(texts[first:last]))
    )
    min_confidence = settings.align.min_confidence if settings.align and rule == "alignment" else 0.0
    lost = dict[str, float]()
    pieces: list[Segment] = []
    for group in groups:
        if _confidence(timed[group.first : group.last]) < min_confidence:
            _add(lost, f"aligned with a confidence below {min_confidence:g}", group.end - group.start)
        else:
            pieces.append(Segment(group.start, group.end, joined(texts[group.first : group.last])))
    for i in too_long:
        _add(lost, _TOO_LONG[rule], edges[i + 1] - edges[i])
    pauses = edges[-1] - edges[0] - sum(lost.values()) - sum(piece.end - piece.start for piece in pieces)
    if pauses > _ROUNDING_S:
        _add(lost, "long pauses", pauses)
    return CutClip(rule, pieces, lost) if pieces else f"nothing left: {listed(lost)}"


def _add(lost: dict[str, float], reason: str, seconds: float) -> None:
    lost[reason] = lost.get(reason, 0.0) + seconds


def _aligned(audio: object, duration: float, text: str, settings: CutSettings, aligner: CTCAligner) -> CutClip | str:
    """Align the words of a text, and cut at the quietest frame of the pauses between them."""
    runs = _between_pauses(aligner.words(audio, duration, text))
    levels = levels_of(audio, duration)
    between = [quietest(levels, a.end, b.start) for a, b in itertools.pairwise(runs)]
    return _in_groups("alignment", runs, [run.text for run in runs], [0.0, *between, duration], settings)


def _between_pauses(words: Sequence[Segment]) -> list[Segment]:
    """Join words without a pause between them to one segment, with the mean of their scores."""
    runs: list[list[Segment]] = []
    for word in words:
        if runs and word.start - runs[-1][-1].end < _MIN_PAUSE_S:
            runs[-1].append(word)
        else:
            runs.append([word])
    return [Segment(run[0].start, run[-1].end, " ".join(word.text for word in run), _mean_score(run)) for run in runs]


def _confidence(segments: Sequence[Segment]) -> float:
    """The mean score of the worse half, so that text beyond the end of the speech is noticed; 1 without scores."""
    half = (len(segments) + 1) // 2
    means = [mean for part in (segments[:half], segments[half:]) if (mean := _mean_score(part)) is not None]
    return min(means, default=1.0)


def _mean_score(segments: Sequence[Segment]) -> float | None:
    scores = [segment.score for segment in segments if segment.score is not None]
    return sum(scores) / len(scores) if scores else None
