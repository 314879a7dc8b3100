"""Lower case as languages write it: in Turkish and Azerbaijani I and \u0131 are one letter, \u0130 and i another."""

from __future__ import annotations

import unicodedata

_CODES = {"turkish": "tr", "tur": "tr", "azerbaijani": "az", "aze": "az", "azj": "az", "lithuanian": "lt", "lit": "lt"}
_DOTLESS = ("tr", "az")
_DOT = "\u0307"  # combining dot above, which Unicode's lower case of \u0130 has behind its i
_UPPER = str.maketrans({"\u0130": "i", "I": "\u0131"})
# Lithuanian keeps the dot of i and j under an accent (SpecialCasing.txt).
_ACCENTED = str.maketrans({"\u00cc": f"i{_DOT}\u0300", "\u00cd": f"i{_DOT}\u0301", "\u0128": f"i{_DOT}\u0303"})
_SOFT_DOTTED = "IJ\u012e"
_ABOVE = 230  # combining class of marks above a letter


def lower_case(text: str, language: str | None = None) -> str:
    """``text``, in Unicode's form NFC or NFKC, in the lower case of ``language``: its name in English or its code.

    A mark that casing makes beside a letter is dropped: the lower case of \u0130 is i, also where the language is not
    known. Lithuanian keeps it, as it is written so.
    """
    code = language_code(language)
    if code == "lt":
        return _composed(_dots_kept(text.translate(_ACCENTED)).lower())
    if code in _DOTLESS:
        text = text.translate(_UPPER)
    made = {ord(c): c.lower()[0] for c in set(text) if len(c.lower()) > 1}
    return _composed(text.translate(made).lower().replace(f"i{_DOT}", "i"))


def _composed(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def language_code(language: str | None) -> str:
    """The code of a language: \"tr\" for \"Turkish\" and for \"tr-TR\"."""
    name = (language or "").lower().replace("_", "-").split("-")[0].strip()
    return _CODES.get(name, name)


def may_be_turkish(before: str, after: str) -> bool:
    """Whether a text had \u0130 and has not any more, or still has what Unicode's lower case leaves of it."""
    had = "\u0130" in before or f"i{_DOT}" in before or f"I{_DOT}" in before
    return f"i{_DOT}" in after or (had and "\u0130" not in after)


def _dots_kept(text: str) -> str:
    letters = []
    for character, following in zip(text, [*text[1:], ""], strict=True):
        above = following != "" and following != _DOT and unicodedata.combining(following) == _ABOVE
        letters.append(character + _DOT if character in _SOFT_DOTTED and above else character)
    return "".join(letters)
