"""How one long clip is cut: by timestamps, by an alignment, or at silences."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .._base.choices import CutRule
from .._base.errors import AsrConfigError, StorageError
from .._base.listing import listed
from ..loading.clip_ranges import split_range
from .ctc_aligner import CTCAligner
from .grouping import grouped, middles
from .segments import Segment, checked_segments, plain_text, read_segments, whisper_segments
from .silences import levels_of, quietest, silent_cuts
from .subtitles import read_subtitles, subtitles_beside
from .text_slices import joined, text_slices

_TOO_LONG = {
    "timestamps": "a single segment over the limit",
    "alignment": "words without a pause, over the limit",
    "silence": "",
}
_PAUSE_S = 0.2  # between words of an alignment that may be parted; a CTC model places letters to some hundredths


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


def cut_clip(audio: Any, duration: float, text: str, segments: Any, settings: CutSettings) -> CutClip | str:
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


def _timed(audio: Any, duration: float, text: str, segments: Any) -> list[Segment] | None:
    if segments is not None and len(segments):
        return read_segments(segments, duration)
    tokens = whisper_segments(text)
    if tokens is not None:
        return checked_segments(tokens, duration)
    file = subtitles_of(audio)
    return None if file is None else checked_segments(read_subtitles(file), duration)


def subtitles_of(audio: Any) -> Path | None:
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


def _aligned(audio: Any, duration: float, text: str, settings: CutSettings, aligner: CTCAligner) -> CutClip | str:
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
