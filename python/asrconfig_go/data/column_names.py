"""Which column holds the audio and which the transcript: the library's list of usual names, whatever their case."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Iterable, Sequence

from .._base import native
from .._base.errors import InvalidArgumentError


@functools.cache
def audio_columns() -> tuple[str, ...]:
    """The usual names of a column with audio or paths, the preferred ones first."""
    return tuple(native.call("library.info")["audio_columns"])


@functools.cache
def text_columns() -> tuple[str, ...]:
    """The usual names of a column with transcripts, the preferred ones first."""
    return tuple(native.call("library.info")["text_columns"])


def usual_columns(columns: Iterable[str], usual: Iterable[str]) -> list[str]:
    """The ``columns`` with usual names, in the order of ``usual``."""
    there = list(columns)
    lower = {str(name).lower(): name for name in reversed(there)}
    return [name if name in there else lower[name] for name in usual if name in lower]


def find_column(columns: Sequence[str], kind: str, wanted: str | None, first: Iterable[str] = ()) -> str:
    """The column of ``kind`` ``"audio"`` or ``"text"``: the one that is ``wanted``, or one with a usual name.

    ``first`` are columns that are certainly it, as those marked as audio. Raises ``InvalidArgumentError`` with the
    column that was probably meant and those that there are.
    """
    usual = audio_columns() if kind == "audio" else text_columns()
    if wanted is not None:
        if wanted in columns:
            return wanted
        raise _unknown(columns, kind, f"no column {wanted!r}", [*_near(wanted, columns), *first])
    for name in (*first, *usual_columns(columns, usual)):
        return name
    near = [name for similar in usual for name in _near(similar, columns)]
    raise _unknown(columns, kind, f"no column of a usual name with the {_WHAT[kind]}", near)


_WHAT = {"audio": "audio", "text": "transcripts"}


def _near(wanted: str, columns: Sequence[str]) -> list[str]:
    """Columns with a similar name, the nearest first, whatever their case."""
    lower = {name.lower(): name for name in columns}
    similar = difflib.get_close_matches(wanted.lower(), list(lower), n=1, cutoff=0.6)
    inside = [name for name in lower if wanted.lower() in name or name in wanted.lower()]
    return [lower[name] for name in (*similar, *inside)]


def _unknown(columns: Sequence[str], kind: str, problem: str, near: list[str]) -> InvalidArgumentError:
    there = ", ".join(columns) or "none"
    option = f"{kind}_column"
    if near:
        hint = f"did you mean {near[0]!r}? Pass {option}={near[0]!r} (--{kind}-column {near[0]})"
    else:
        hint = f"name it: {option}=… (--{kind}-column NAME)"
    return InvalidArgumentError(f"the data has {problem} (columns: {there})", hint)
