"""Checks that caches and augmentations share."""

from __future__ import annotations

from typing import Any

from .._base.checks import checked, checked_list
from .._base.errors import InvalidArgumentError

RATES = (1000, 1_000_000)  # hertz; a file that claims another one is damaged, and would become very long or nothing


def check_rate(sample_rate: int) -> None:
    """Raise ``InvalidArgumentError`` outside 1000 to 1 000 000 Hz."""
    check_count("sample_rate", sample_rate, *RATES, "16000 is usual")


def check_probability(probability: float) -> None:
    """Raise ``InvalidArgumentError`` outside 0 to 1."""
    if not 0 <= checked("probability", probability, float) <= 1:
        raise InvalidArgumentError(f"probability = {probability} is not between 0 and 1", "1.0 changes every clip")


def check_range(name: str, value: Any, low: float, high: float, usual: str) -> tuple[float, float]:
    """The two ends of a range within ``low`` to ``high``; ``InvalidArgumentError`` for anything else."""
    numbers = checked_list(name, value, float)
    if len(numbers) != 2 or not low <= numbers[0] <= numbers[1] <= high:
        raise InvalidArgumentError(f"{name} = {value!r} is not a range within {low:g} to {high:g}", usual)
    return numbers[0], numbers[1]


def check_count(name: str, value: Any, low: int, high: int, usual: str) -> int:
    """A whole number from ``least`` to ``most``; ``InvalidArgumentError`` for anything else."""
    number = int(checked(name, value, int))
    if not low <= number <= high:
        raise InvalidArgumentError(f"{name} = {number} is not between {low} and {high}", usual)
    return number
