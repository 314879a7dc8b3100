"""The words for what a training takes one by one, written by build/generate from core/units/rows.go."""

from dataclasses import dataclass
from typing import Final, Literal

RowKind = Literal["clips", "texts"]
"""Clips of audio, whose lengths are seconds, or texts, whose lengths are tokens."""


@dataclass(frozen=True)
class RowWords:
    """The words of a kind of rows, how many units of their lengths count as a second, and its bytes in a batch."""

    noun: str
    unit: str
    content: str
    lengths: str
    per_second: int
    second_bytes: int

    @property
    def nouns(self) -> str:
        """``clips``, ``texts``."""
        return f"{self.noun}s"

    def count(self, number: int) -> str:
        """``1 clip``, ``32 texts``."""
        return f"{number} {self.noun if number == 1 else self.nouns}"

    def length(self, seconds: float) -> str:
        """``25.5 s``, ``80000 s``, ``128 tokens``."""
        figure = f"{seconds:.4g}" if self.per_second == 1 and seconds < 1000 else f"{seconds * self.per_second:.0f}"
        return f"{figure} {self.unit}"

    def amount(self, hours: float) -> str:
        """``9.91 h``, ``12979 tokens``."""
        return f"{hours:.2f} h" if self.per_second == 1 else self.length(3600 * hours)


WORDS: Final[dict[RowKind, RowWords]] = {
    "clips": RowWords("clip", "s", "audio", "durations", 1, 64000),
    "texts": RowWords("text", "tokens", "text", "lengths", 50, 400),
}
