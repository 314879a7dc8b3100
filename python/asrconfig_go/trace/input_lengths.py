"""The lengths of a model's inputs and labels for clips and texts of a duration."""

from __future__ import annotations

import math

from .._core.declared import WORDS, RowKind
from ..errors import InvalidArgumentError


class InputLengths:
    """Converts durations to the lengths of a model's inputs and labels.

    Its attributes are described in ``SpeechBatches``; a trace stores them, so that it converts without the model.
    """

    length_per_second: float
    """Units of input length in a second of audio: samples, frames of features, or tokens of text."""
    fixed_length: int | None = None
    max_length: int | None = None
    max_labels: int | None = None
    labels_per_second: float = 15  # characters: about two and a half words
    truncates: bool = False
    row_kind: RowKind = "clips"
    """``"texts"`` where the rows of its batches are texts, else ``"clips"``."""

    @property
    def name(self) -> str:
        """The model's name in errors."""
        return "the model"

    @property
    def longest_s(self) -> float:
        """The seconds of the longest clip that the model takes; infinite where it takes any, or truncates longer."""
        if self.truncates:
            return math.inf
        return (self.fixed_length or self.max_length or math.inf) / self.length_per_second

    def length(self, seconds: float) -> int:
        """Return the input length of a batch whose longest clip has this duration.

        Args:
            seconds: The seconds of the clip, above 0.

        Returns:
            The length in samples, frames of features or tokens, as the model takes it.

        Raises:
            InvalidArgumentError: The duration is not above 0, or longer than the model takes.
        """
        if not seconds > 0 or not math.isfinite(seconds):
            raise InvalidArgumentError(f"{seconds!r} seconds of audio", "pass a duration above 0")
        length, allowed = math.ceil(seconds * self.length_per_second - 1e-6), self.fixed_length or self.max_length
        if allowed and length > allowed and not self.truncates:
            words = WORDS[self.row_kind]
            limit, actual = (words.length(n / self.length_per_second) for n in (allowed, length))
            counted = "" if self.row_kind == "texts" else f": {length} samples or frames, not {allowed}"
            raise InvalidArgumentError(
                f"{words.content} of {actual} is longer than the {limit} that {self.name} takes{counted}",
                "split clips, truncate texts, or choose a model without fixed positions",
            )
        return self.fixed_length or min(length, self.max_length or length)

    def labels(self, seconds: float) -> int:
        """Return the usual number of label tokens of a clip of this duration.

        Args:
            seconds: The seconds of the clip.

        Returns:
            The tokens, at least 1, within the model's positions.
        """
        usual = max(1, round(seconds * self.labels_per_second))
        return min(usual, self.max_labels) if self.max_labels else usual

    def allowed_labels(self, labels: int) -> int:
        """Return a label length that the model takes.

        Args:
            labels: The tokens of a text.

        Returns:
            ``labels``.

        Raises:
            InvalidArgumentError: They are more than the model's positions allow.
        """
        if self.max_labels and labels > self.max_labels:
            raise InvalidArgumentError(
                f"labels = {labels} is more than the {self.max_labels} tokens that {self.name} takes",
                "shorten or drop longer texts",
            )
        return labels


FACTS = tuple(InputLengths.__annotations__)
"""The fields that a trace stores."""
