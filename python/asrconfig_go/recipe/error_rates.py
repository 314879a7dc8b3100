"""Edit distance, word and character error rate of transcripts."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence


def edit_distance(reference: Sequence[Hashable], hypothesis: Sequence[Hashable]) -> int:
    """Levenshtein distance: the fewest insertions, deletions and substitutions from one sequence to the other.

    A column of the table of distances is kept as the signs of its steps, in the bits of two whole numbers (Myers 1999,
    Hyyrö 2003): a clip's characters take microseconds each instead of a row of the table.
    """
    if not reference:
        return len(hypothesis)
    places: dict[Hashable, int] = {}
    for place, token in enumerate(reference):
        places[token] = places.get(token, 0) | 1 << place
    ones, last = (1 << len(reference)) - 1, 1 << (len(reference) - 1)
    up, down, distance = ones, 0, len(reference)
    for token in hypothesis:
        same = places.get(token, 0)
        diagonal = (((same & up) + up) ^ up) | same | down
        plus, minus = down | ~(diagonal | up) & ones, up & diagonal
        distance += bool(plus & last) - bool(minus & last)
        plus, minus = plus << 1 | 1, minus << 1
        up = (minus | ~(diagonal | plus)) & ones
        down = plus & diagonal & ones
    return distance


def word_error_rate(references: Sequence[str], hypotheses: Sequence[str]) -> float:
    """Word errors of all texts over the words of all references: 0.0 is perfect, more than 1.0 is possible.

    Raises ValueError when the two lists differ in length or the references hold no word.
    """
    return _rate(references, hypotheses, str.split, "word")


def character_error_rate(references: Sequence[str], hypotheses: Sequence[str]) -> float:
    """As ``word_error_rate``, of characters; single spaces between words count."""
    return _rate(references, hypotheses, lambda text: " ".join(text.split()), "character")


def _rate(
    references: Sequence[str], hypotheses: Sequence[str], units: Callable[[str], Sequence[Hashable]], unit: str
) -> float:
    count = sum(len(units(reference)) for reference in references)
    if count == 0:
        raise ValueError(f"{unit} error rate needs at least one reference {unit}")
    pairs = zip(references, hypotheses, strict=True)
    return sum(edit_distance(units(reference), units(hypothesis)) for reference, hypothesis in pairs) / count
