"""Printing that never raises, lists in messages, and progress bars."""

from __future__ import annotations

import codecs
import contextlib
import json
import logging
import os
import sys
import time
import unicodedata
from collections import deque
from collections.abc import Callable, Iterable, Iterator
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
logger: logging.Logger = logging.getLogger("asrconfig_go")
UNWRITTEN: deque[OSError] = deque(maxlen=1)
"""Why the newest text could not be written to stdout; a command ends with it."""


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
    except OSError as error:  # full, or nobody reads
        if stream is sys.stdout:
            UNWRITTEN.append(error)
        return False
    except (ValueError, LookupError, AttributeError):  # closed, of no known encoding, no stream at all
        return False
    return True


def show(value: object, stream: IO[str] | None = None) -> bool:
    """``print(what)`` by ``write``."""
    return write(f"{value}\n", stream)


def show_json(value: object, *, indent: int | None = 2) -> bool:
    """Print JSON; what the encoding lacks is escaped, so that nothing of it is lost."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    return show(text if _fits(text, sys.stdout) else json.dumps(value, indent=indent))


def _fits(text: str, stream: IO[str]) -> bool:
    try:
        text.encode(_encoding(stream))
    except UnicodeEncodeError:
        return False
    return True


def _encodable(text: str, stream: IO[str]) -> str:
    encoding = _encoding(stream)
    return text if _fits(text, stream) else text.encode(encoding, _ERRORS).decode(encoding)


def _encoding(stream: IO[str]) -> str:
    """The encoding of the stream; UTF-8 for one without, such as those of tests and notebooks."""
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


SHOWN = 8
"""Entries of a list in a message."""
LINES = 20
"""Lines of a list in a report."""
LONGEST = 400
"""Characters of a text that somebody else wrote."""


def listed(items: Iterable[object], separator: str = ", ", shown: int = SHOWN) -> str:
    """The first ``items`` as text, and how many more there are.

    >>> listed(range(30), shown=3)
    '0, 1, 2, … and 27 more'
    """
    return separator.join(first_of(items, shown))


def first_of(items: Iterable[object], shown: int = LINES) -> list[str]:
    """The same as lines."""
    texts = list(items)
    more = [f"… and {len(texts) - shown} more"] if len(texts) > shown else []
    return [*map(str, texts[:shown]), *more]


def kind_of(value: object) -> str:
    """A value's type in words: ``None``, ``an int``, ``a list``."""
    return "None" if value is None else with_article(type(value).__name__)


def with_article(name: str) -> str:
    """``an int``, ``a list``."""
    return f"{'an' if name[:1].lower() in 'aeio' else 'a'} {name}"


def shortened(text: str, longest: int = LONGEST) -> str:
    """``text`` of at most so many characters."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


Advance = Callable[[int, int | None], None]  # (done, total)

_DELAY_S = 0.5
_FILE_INTERVAL_S = 30  # a file, as of nohup, keeps every state of a bar


class ProgressBar:
    """A tqdm bar that shows only on work of more than half a second, in a file of half a minute; nothing without tqdm.

    tqdm is imported when the bar is shown: that takes longer than most short work. ``note`` returns the bar's postfix.
    """

    def __init__(
        self, label: str, unit: str, total: int | None, visible: bool, note: Callable[[], str] = lambda: ""
    ) -> None:
        self._options: dict[str, str | int | None] = {"desc": label, "unit": unit, "total": total}
        self._shown, self._note, self._started = visible, note, time.time()
        self._bar: Any = None

    def __enter__(self) -> Advance:
        return self._advance

    def _advance(self, done: int, total: int | None) -> None:
        if not self._shown or time.time() < self._started + _DELAY_S:
            return
        try:
            if self._bar is None:
                from tqdm.auto import tqdm

                watched = sys.stderr.isatty() or "ipykernel" in sys.modules
                interval = 0.1 if watched else _FILE_INTERVAL_S
                self._bar = tqdm(**self._options, delay=_DELAY_S, leave=False, mininterval=interval)
                self._bar.start_t = self._bar.last_print_t = self._started  # the work began earlier
            self._bar.total = total
            self._bar.set_postfix_str(self._note(), refresh=False)
            self._bar.update(done - self._bar.n)
        except (ImportError, OSError, ValueError):  # no tqdm, or nobody reads it any more
            self._bar, self._shown = None, False

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            with contextlib.suppress(OSError, ValueError):
                self._bar.close()


def first_process() -> bool:
    """Whether this is the first of the processes that torchrun started, or the only one."""
    return os.environ.get("RANK", "0") == "0"


@contextlib.contextmanager
def quiet(silent: bool) -> Iterator[None]:
    """Show no bars of transformers, as that of writing a model, if ``silent``; put things back as they were."""
    from transformers.utils import logging

    enabled = logging.is_progress_bar_enabled()
    if silent:
        logging.disable_progress_bar()
    try:
        yield
    finally:
        if silent and enabled:
            logging.enable_progress_bar()
