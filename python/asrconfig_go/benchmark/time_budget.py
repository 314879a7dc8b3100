"""How long a benchmark may take."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from .._base.checks import checked
from .._base.errors import InvalidArgumentError


class OutOfTime(BaseException):
    """The time is up. As Ctrl-C, it passes through what takes a training's errors for results."""


@dataclass(frozen=True)
class TimeBudget:
    """Seconds since it was made; None is without a limit."""

    max_seconds: float | None = None
    _began: float = field(default_factory=lambda: time.monotonic())

    def __post_init__(self) -> None:
        seconds = checked("max_seconds", self.max_seconds, float | None)
        if seconds is not None and seconds <= 0:
            raise InvalidArgumentError(
                f"max_seconds = {seconds:g} is not above 0", "pass seconds, or leave it out for no limit"
            )

    def check(self) -> None:
        """Raise ``OutOfTime`` once the time is up."""
        if self.max_seconds is not None and self._left() <= 0:
            raise OutOfTime

    @property
    def words(self) -> str:
        """What is left, for a progress bar; empty without a limit."""
        return "" if self.max_seconds is None else f"at most {max(0.0, self._left()):.0f} s left"

    def _left(self) -> float:
        return (self.max_seconds or 0.0) - (time.monotonic() - self._began)
