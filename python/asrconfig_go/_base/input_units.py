"""Inputs of models by name, and how long one unit of them counts.

Plans, traces and reports reckon in seconds. A token of text counts as a frame of wav2vec2, 20 ms: a transformer
computes as much for one as for the other, so whatever a plan assumes of a second of audio holds for 50 tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

INPUTS: Final = ("input_values", "input_features", "input_ids")
"""What models of transformers call their input: samples, frames of features, tokens."""
TOKENS_PER_SECOND: Final = 50
FRAMES_PER_SECOND: Final = 100
"""Of spectrograms of an unknown model: 10 ms a frame, as of log-mel features."""


@dataclass(frozen=True)
class InputUnit:
    """What the lengths of a model's input count: ``word``, so many a second; all are padded to ``fixed``, if any."""

    word: str
    per_second: float
    fixed: int | None = None

    def seconds(self, length: int) -> float:
        """How long an input of this length counts."""
        return (self.fixed or length) / self.per_second

    def __str__(self) -> str:
        each = f"{self.per_second:g} {self.word} a second"
        return each if self.fixed is None else f"each of {self.seconds(0):g} s, {each}"
