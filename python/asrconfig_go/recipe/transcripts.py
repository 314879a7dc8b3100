"""Cleans transcripts: one form of each letter, no punctuation; and counts the changes."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from ..view.units import plural, visible
from .letter_case import lower_case, may_be_turkish

_APOSTROPHES = str.maketrans(dict.fromkeys("\u2018\u2019\u02bc\uff07`\u00b4", "'"))
_JOINERS = "\u200c\u200d"  # they change how letters of Persian and of Indian languages are written
_WITHIN_NUMBERS = re.compile(r"(?<=\d)[.,:](?=\d)")
_PARTING = ("Pd", "Pc", "Zs", "Zl", "Zp", "Cc")  # dashes, underscores, spaces, controls: words end there
_SLASHES = "/\\|\u2044"
_SHOWN = 12  # kinds of characters that a report lists


def clean_text(text: str, *, lowercase: bool = True, keep: str = "'", language: str | None = None) -> str:
    """``text`` in Unicode's form NFKC, in lower case, without punctuation, symbols and repeated spaces.

    The lower case is that of ``language``, by its English name or code: in Turkish (``"tr"``) and Azerbaijani I becomes
    ı, and İ becomes i; elsewhere both become i, without a combining dot. Characters in ``keep`` stay, and so do letters
    and marks of every script. Typographic apostrophes become ``'``. Dashes, slashes and underscores end a word. Numbers
    stay as they are written, with the points between their digits: their spoken form is ambiguous.

    >>> clean_text("Hello,  WORLD!")
    'hello world'
    """
    text = unicodedata.normalize("NFKC", text.replace("\u2044", " ").translate(_APOSTROPHES)).translate(_APOSTROPHES)
    if lowercase:
        text = lower_case(text, language)
    within = {match.start() for match in _WITHIN_NUMBERS.finditer(text)}
    characters = (c if i in within or c in keep else _cleaned(c) for i, c in enumerate(text))
    return " ".join("".join(characters).split())


def _cleaned(character: str) -> str:
    kind = unicodedata.category(character)
    if kind[0] in "LMN" or character in _JOINERS:
        return character
    return " " if kind in _PARTING or character in _SLASHES else ""


@dataclass
class CleaningReport:
    """What cleaning did to the transcripts it was shown."""

    texts: int = 0
    changed: int = 0
    empty: int = 0
    """Without any letter or number afterwards."""
    with_digits: int = 0
    dotted: int = 0
    """With İ, or an i that has a combining dot, where ``language`` is not known."""
    removed: Counter[str] = field(default_factory=Counter)
    """How often each character was removed or replaced by a space."""
    language: str | None = None

    def add(self, before: str, after: str) -> None:
        """Count one transcript."""
        self.texts += 1
        self.changed += before != after
        self.empty += not after
        self.with_digits += any(c.isdigit() for c in after)
        self.dotted += self.language is None and may_be_turkish(before, after)
        written = unicodedata.normalize("NFC", before)
        self.removed += Counter(c for c in written if not c.isalnum() and not c.isspace()) - Counter(after)

    def notes(self) -> Iterable[str]:
        """In sentences; none of what did not happen."""
        if self.changed:
            yield f"cleaning changed {self.changed} of {plural(self.texts, 'transcript')}{self._marks()}"
        if self.dotted:
            yield (
                f"{plural(self.dotted, 'transcript')} with \u0130 or i with a combining dot, as in Turkish: clean with "
                'language="tr" (--language), so that I becomes \u0131 and \u0130 becomes i'
            )
        if self.empty:
            yield f"{plural(self.empty, 'clip')} without a transcript left out"
        if self.with_digits:
            yield (
                f"{plural(self.with_digits, 'transcript')} with digits, left as written: write numbers out in words "
                "for better results"
            )

    def _marks(self) -> str:
        if not self.removed:
            return ""
        marks = ", ".join(f"{visible(c)} {count}\u00d7" for c, count in self.removed.most_common(_SHOWN))
        others = len(self.removed) - _SHOWN
        return f"; removed {marks}" + (f" and {others} other characters" if others > 0 else "")
