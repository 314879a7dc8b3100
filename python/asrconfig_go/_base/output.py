"""Printing that never raises, whatever the encoding of stdout and whether a pipe is closed."""

from __future__ import annotations

import codecs
import contextlib
import json
import sys
import unicodedata
from collections.abc import Iterator
from typing import IO, Any

# What reads well in ASCII; accents are taken off by their decomposition, what is left becomes a question mark.
_ASCII = {
    "×": "x", "·": "|", "–": "-", "—": "-", "−": "-", "…": "...", "→": "->", "←": "<-", "≥": ">=", "≤": "<=", "≈": "~",
    "±": "+-", "°": " deg ", "░": ".", "│": "|", "─": "-", "“": '"', "”": '"', "‘": "'", "’": "'", "„": '"',
    "µ": "u", "μ": "u", "√": "sqrt ", "✓": "ok", "✗": "x", "✖": "x", "⚠": "!", "•": "*", "ß": "ss", "ı": "i",
}  # fmt: skip
_DRAWN = (("─", "╿", "+"), ("▀", "▟", "#"))  # lines and bars
_POWERS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
_ERRORS = "asrconfig_go.ascii"


def _replaced(error: UnicodeError) -> tuple[str, int]:
    """For ``codecs``: replacements for the characters that an encoding lacks."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    power = error.start > 0 and error.object[error.start - 1].isalnum()
    return "".join(_in_ascii(c, power and i == 0) for i, c in enumerate(text)), error.end


def _in_ascii(character: str, power: bool) -> str:
    replacement = _ASCII.get(character)
    if replacement is not None:
        return replacement
    for first, last, drawn in _DRAWN:
        if first <= character <= last:
            return drawn
    plain = character.translate(_POWERS)
    if plain != character:
        return f"^{plain}" if power else plain
    letters = unicodedata.normalize("NFKD", character).encode("ascii", "ignore").decode()
    return letters or "?"


codecs.register_error(_ERRORS, _replaced)


def write(text: str, stream: IO[str] | None = None) -> bool:
    """Write to ``stream``, or to stdout, at once; False where nobody reads any more, and where nothing can be written.

    Characters that the stream's encoding lacks are replaced: ``×`` by ``x``, ``→`` by ``->``.
    """
    stream = sys.stdout if stream is None else stream
    try:
        stream.write(_encodable(text, stream))
        stream.flush()
    except (OSError, ValueError, LookupError, AttributeError):  # closed, full, of no known encoding, no stream at all
        return False
    return True


def show(value: object, stream: IO[str] | None = None) -> bool:
    """``print(what)`` by ``write``."""
    return write(f"{value}\n", stream)


def show_json(value: Any, *, indent: int | None = 2) -> bool:
    """Print JSON; what the encoding lacks is escaped, so that nothing of it is lost."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    return show(text if _fits(text, sys.stdout) else json.dumps(value, indent=indent))


def _fits(text: str, stream: Any) -> bool:
    try:
        text.encode(_encoding(stream))
    except UnicodeEncodeError:
        return False
    return True


def _encodable(text: str, stream: Any) -> str:
    encoding = _encoding(stream)
    return text if _fits(text, stream) else text.encode(encoding, _ERRORS).decode(encoding)


def _encoding(stream: Any) -> str:
    """As the stream says; UTF-8 of one that does not, such as those that tests and notebooks put there."""
    return getattr(stream, "encoding", None) or "utf-8"


@contextlib.contextmanager
def forgiving_streams() -> Iterator[None]:
    """Let what others print to stdout and stderr, such as argparse its help, lose characters rather than fail."""
    before = [(stream, stream.errors) for stream in (sys.stdout, sys.stderr) if hasattr(stream, "reconfigure")]
    for stream, _ in before:
        stream.reconfigure(errors=_ERRORS)
    try:
        yield
    finally:
        for stream, errors in before:
            with contextlib.suppress(ValueError):  # closed meanwhile
                stream.reconfigure(errors=errors)
