"""Subtitles beside a recording: SubRip (.srt) and WebVTT (.vtt)."""

from __future__ import annotations

import html
import os
import re
from pathlib import Path

from .._base.errors import CorruptFileError
from .._base.storage import from_storage
from .segments import Segment

ENDINGS = (".srt", ".vtt")
_CUE = re.compile(r"\s*((?:\d+:)?\d+:\d+[.,]\d+)\s*-->\s*((?:\d+:)?\d+:\d+[.,]\d+)")
_TAG = re.compile(r"<[^>]*>|\{\\[^}]*\}")
_MAX_BYTES = 64 << 20


def subtitles_beside(audio: str | os.PathLike[str]) -> Path | None:
    """``talk.srt`` or ``talk.vtt`` (or ``talk.flac.srt``) beside ``talk.flac``; None where there is none."""
    path = Path(audio)
    names = [path.with_suffix(ending) for ending in ENDINGS] + [path.with_name(path.name + e) for e in ENDINGS]
    return next((name for name in names if name.is_file()), None)


def read_subtitles(path: Path) -> list[Segment]:
    """The cues of a file in order, without markup. Raises ``CorruptFileError`` for one that holds none."""
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise ValueError(f"it has over {_MAX_BYTES >> 20} MiB")
        text = from_storage(path, lambda: path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        raise CorruptFileError(f"{path} cannot be read as subtitles: {error}", "write it as UTF-8") from error
    blocks = re.split(r"\n\s*\n", text.replace("\r\n", "\n").replace("\r", "\n"))
    cues = [cue for block in blocks if (cue := _cue(block)) is not None]
    if not cues:
        raise CorruptFileError(
            f"{path} holds no cue with times", "a cue is a line 00:00:01,000 --> 00:00:02,500, and lines of text"
        )
    return cues


def _cue(block: str) -> Segment | None:
    lines = block.split("\n")
    for i, line in enumerate(lines):
        times = _CUE.match(line)
        if times:
            caption = html.unescape(_TAG.sub("", " ".join(lines[i + 1 :])))
            return Segment(_seconds(times[1]), _seconds(times[2]), " ".join(caption.split()))
    return None


def _seconds(time: str) -> float:
    seconds = 0.0
    for part in time.replace(",", ".").split(":"):
        seconds = 60 * seconds + float(part)
    return round(seconds, 6)
