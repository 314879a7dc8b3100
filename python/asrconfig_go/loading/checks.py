"""Checks that all augmentations share."""

from __future__ import annotations

from .._checks import checked
from .._errors import InvalidArgumentError


def check_probability(probability: float) -> None:
    """Raise ``InvalidArgumentError`` outside 0 to 1."""
    if not 0 <= checked("probability", probability, float) <= 1:
        raise InvalidArgumentError(f"probability = {probability} is not between 0 and 1", "1.0 changes every clip")
