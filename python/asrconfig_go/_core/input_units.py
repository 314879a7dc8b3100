"""Inputs of models by name, and how long one unit of them counts.

Plans, traces and reports reckon in seconds, also of texts: see ``TokensPerSecond`` of core/units, whose words are those
of ``declared``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ..errors import InvalidArgumentError
from .declared import WORDS, RowKind, RowWords

__all__ = [
    "FRAMES_PER_SECOND", "INPUTS", "TOKENS_PER_SECOND", "WORDS", "InputUnit", "RowKind", "RowWords", "audio_name",
    "input_length",
]  # fmt: skip

INPUTS: Final = ("input_values", "input_features", "input_ids")
"""What models of transformers call their input: samples, frames of features, tokens."""
_AUDIO = (*INPUTS[:2], "audio", "speech", "mel", "spectrogram", "waveform")
TOKENS_PER_SECOND: Final = WORDS["texts"].per_second
FRAMES_PER_SECOND: Final = 100
"""Of spectrograms of an unknown model: 10 ms a frame, as of log-mel features."""


def audio_name(names: Iterable[str]) -> str | None:
    """The first name of an argument or setting that stands for audio; None where no name does."""
    return next((name for name in names if any(part in name for part in _AUDIO)), None)


@dataclass(frozen=True)
class InputUnit:
    """The unit of a model's input lengths: ``per_second`` ``word``; all inputs are padded to ``fixed``, if set.

    ``row_kind``: ``"texts"`` where rows hold tokens and no audio.
    """

    word: str
    per_second: float
    fixed: int | None = None
    row_kind: RowKind = "clips"

    def seconds(self, length: int) -> float:
        """Convert an input length to seconds."""
        return (self.fixed or length) / self.per_second

    def __str__(self) -> str:
        if self.row_kind == "texts":
            return self.word if self.fixed is None else f"{self.fixed} {self.word} each"
        rate = f"{self.per_second:g} {self.word} a second"
        return rate if self.fixed is None else f"each of {self.seconds(0):g} s, {rate}"


def input_length(
    seconds: float,
    per_second: float,
    *,
    fixed: int | None,
    longest: int | None,
    truncates: bool,
    row_kind: RowKind,
    model: str,
) -> int:
    """The length of a batch whose longest row lasts ``seconds``, in samples, frames or tokens, as ``model`` takes it.

    ``fixed`` is what all rows are padded to, ``longest`` what the model's positions allow; a longer row is cut where
    the model ``truncates``, else it is refused.
    """
    length, allowed = math.ceil(seconds * per_second - 1e-6), fixed or longest
    if allowed and length > allowed and not truncates:
        words = WORDS[row_kind]
        limit, actual = words.length(allowed / per_second), words.length(length / per_second)
        counted = "" if row_kind == "texts" else f": {length} samples or frames, not {allowed}"
        raise InvalidArgumentError(
            f"{words.content} of {actual} is longer than the {limit} that {model} takes{counted}",
            "split clips, truncate texts, or choose a model without fixed positions",
        )
    return fixed or min(length, longest or length)
