"""Inputs of models by name, and how long one unit of them counts.

Plans, traces and reports reckon in seconds, also of texts: see ``TokensPerSecond`` of core/units, whose words are those
of ``_row_words``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ._row_words import WORDS, RowKind, RowWords

__all__ = [
    "FRAMES_PER_SECOND",
    "INPUTS",
    "TOKENS_PER_SECOND",
    "WORDS",
    "InputUnit",
    "RowKind",
    "RowWords",
    "audio_name",
    "too_long",
]

INPUTS: Final = ("input_values", "input_features", "input_ids")
"""What models of transformers call their input: samples, frames of features, tokens."""
_AUDIO = (*INPUTS[:2], "audio", "speech", "mel", "spectrogram", "waveform")
TOKENS_PER_SECOND: Final = WORDS["texts"].per_second
FRAMES_PER_SECOND: Final = 100
"""Of spectrograms of an unknown model: 10 ms a frame, as of log-mel features."""


def audio_name(names: Iterable[str]) -> str | None:
    """The first of the names of arguments or settings that is of audio; None of a model that hears nothing."""
    return next((name for name in names if any(part in name for part in _AUDIO)), None)


@dataclass(frozen=True)
class InputUnit:
    """What the lengths of a model's input count: ``word``, so many a second; all are padded to ``fixed``, if any.

    ``row_kind``: what people call the rows, ``"texts"`` where they hold tokens and nothing to hear.
    """

    word: str
    per_second: float
    fixed: int | None = None
    row_kind: RowKind = "clips"

    def seconds(self, length: int) -> float:
        """How long an input of this length counts."""
        return (self.fixed or length) / self.per_second

    def __str__(self) -> str:
        if self.row_kind == "texts":
            return self.word if self.fixed is None else f"{self.fixed} {self.word} each"
        each = f"{self.per_second:g} {self.word} a second"
        return each if self.fixed is None else f"each of {self.seconds(0):g} s, {each}"


def too_long(row_kind: RowKind, model: str, length: int, longest: int, per_second: float) -> str:
    """What is wrong with an input of this length, of which ``model`` takes ``longest``."""
    words = WORDS[row_kind]
    most, asked = words.length(longest / per_second), words.length(length / per_second)
    counted = "" if row_kind == "texts" else f": {length} samples or frames, not {longest}"
    return f"{words.content} of {asked} is longer than the {most} that {model} takes{counted}"
