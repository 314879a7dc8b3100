"""The parts of a transcript that belong to its segments, found by the letters and digits that both spell."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from itertools import accumulate, pairwise


def text_slices(text: str, parts: Sequence[str]) -> list[str] | None:
    """``text`` in as many parts as there are in ``parts``, which joined by spaces are ``text`` but for its spacing.

    Capitals, punctuation, accents and spaces may differ, so a cleaned transcript goes with segments as they were
    written. None where letters or digits differ.
    """
    places = [(i, letter) for i, c in enumerate(text) for letter in _letters(c)]
    wanted = ["".join(map(_letters, part)) for part in parts]
    if "".join(letter for _, letter in places) != "".join(wanted):
        return None
    counts = list(accumulate(map(len, wanted)))
    starts = [places[count][0] if count < len(places) else len(text) for count in counts[:-1]]
    cuts = [0, *(_word_start(text, start) for start in starts), len(text)]
    return [text[a:b].strip() for a, b in pairwise(cuts)]


def joined(parts: Sequence[str]) -> str:
    """Join segments to a text; words of transformers' pipeline include their spaces."""
    spaced = any(part[:1].isspace() for part in parts[1:])
    return " ".join(("" if spaced else " ").join(parts).split())


def _letters(character: str) -> str:
    if character.isascii():
        return character.lower() if character.isalnum() else ""
    return "".join(c for c in unicodedata.normalize("NFKD", character).casefold() if c.isalnum())


def _word_start(text: str, place: int) -> int:
    """The start of the word at ``place`` with leading punctuation, such as an opening quotation mark."""
    start = place
    while start and not text[start - 1].isspace() and not text[start - 1].isalnum():
        start -= 1
    return start if not start or text[start - 1].isspace() else place
