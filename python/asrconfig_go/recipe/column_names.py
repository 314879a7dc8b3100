"""Which column holds the audio and which the transcript; a wrong name is answered with the right one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from .._base.errors import InvalidArgumentError
from ..data.arrow_columns import PATH_COLUMNS, TEXT_COLUMNS

AUDIO_COLUMNS = (*PATH_COLUMNS, "file_name", "audio_path", "audio_file", "file_path", "speech")
TEXTS = (*TEXT_COLUMNS, "normalized_transcription", "normalised_text", "target_text", "label", "caption")


def find_column(columns: Sequence[str], kind: str, wanted: str | None, first: Iterable[str] = ()) -> str:
    """The column of ``kind`` ``"audio"`` or ``"text"``: the one that is ``wanted``, or one with a usual name.

    ``first`` are columns that are certainly it, as those marked as audio. Raises ``InvalidArgumentError`` with the
    column that was probably meant and those that there are.
    """
    known = AUDIO_COLUMNS if kind == "audio" else TEXTS
    if wanted is not None:
        if wanted in columns:
            return wanted
        raise _unknown(columns, kind, f"no column {wanted!r}", [*_near(wanted, columns), *first])
    for name in first:
        return name
    lower = {name.lower(): name for name in reversed(columns)}
    for name in known:
        if name in lower:
            return lower[name]
    near = [name for each in known for name in _near(each, columns)]
    raise _unknown(columns, kind, f"no column of a usual name with the {_WHAT[kind]}", near)


_WHAT = {"audio": "audio", "text": "transcripts"}


def _near(wanted: str, columns: Sequence[str]) -> list[str]:
    """Columns with a name like it, the nearest first, whatever their case."""
    lower = {name.lower(): name for name in columns}
    found = difflib.get_close_matches(wanted.lower(), list(lower), n=1, cutoff=0.6)
    inside = [name for name in lower if wanted.lower() in name or name in wanted.lower()]
    return [lower[name] for name in (*found, *inside)]


def _unknown(columns: Sequence[str], kind: str, what: str, near: list[str]) -> InvalidArgumentError:
    there = ", ".join(columns) or "none"
    option = f"{kind}_column"
    if near:
        hint = f"did you mean {near[0]!r}? Pass {option}={near[0]!r} (--{kind}-column {near[0]})"
    else:
        hint = f"name it: {option}=… (--{kind}-column NAME)"
    return InvalidArgumentError(f"the data has {what} (columns: {there})", hint)
