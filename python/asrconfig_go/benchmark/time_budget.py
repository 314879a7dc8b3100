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
    """Minutes since it was made; None is without a limit."""

    minutes: float | None = None
    _began: float = field(default_factory=lambda: time.monotonic())

    def __post_init__(self) -> None:
        minutes = checked("minutes", self.minutes, float | None)
        if minutes is not None and minutes <= 0:
            raise InvalidArgumentError(f"minutes = {minutes:g} is not above 0", "leave it out for no limit")

    def check(self) -> None:
        """Raise ``OutOfTime`` once the time is up."""
        if self.minutes is not None and self._remaining_s() <= 0:
            raise OutOfTime

    @property
    def words(self) -> str:
        """What is left, for a progress bar; empty without a limit."""
        return "" if self.minutes is None else f"at most {max(0.0, self._remaining_s()):.0f} s left"

    def _remaining_s(self) -> float:
        return 60 * (self.minutes or 0.0) - (time.monotonic() - self._began)
