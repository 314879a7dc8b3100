"""Options of the memory callback."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypedDict

from .._base.checks import checked
from .._base.defaults import INTERVAL_MS
from .._base.errors import InvalidArgumentError
from .next_batch import by_memory


class WatchSettings(TypedDict, total=False):
    """What ``AdaptiveMemoryCallback`` takes by keyword."""

    warn_at: float
    clean_at: float
    hysteresis: float
    cooldown_s: float
    interval_ms: float
    progress: bool
    panel: bool | None
    run_file: bool
    memory: Any


@dataclass(frozen=True)
class WatchOptions:
    """See ``AdaptiveMemoryCallback``. Raises ``InvalidArgumentError`` for what makes no sense."""

    warn_at: float = 0.90
    clean_at: float = 0.95
    hysteresis: float = 0.05
    cooldown_s: float = 60.0
    interval_ms: float = INTERVAL_MS
    progress: bool = True
    panel: bool | None = None
    run_file: bool = True
    memory: Any = None

    def __post_init__(self) -> None:
        for name in ("warn_at", "clean_at", "hysteresis", "cooldown_s", "interval_ms"):
            object.__setattr__(self, name, checked(name, getattr(self, name), float))
        for name, hint in (("progress", bool), ("run_file", bool), ("panel", bool | None)):
            checked(name, getattr(self, name), hint)
        if not 0 < self.warn_at < self.clean_at <= 1 or not 0 <= self.hysteresis < self.warn_at:
            raise InvalidArgumentError(
                f"warn_at = {self.warn_at}, clean_at = {self.clean_at}, hysteresis = {self.hysteresis} are no shares "
                "in that order",
                "0 < warn_at < clean_at <= 1 and 0 <= hysteresis < warn_at; the defaults are 0.90, 0.95 and 0.05",
            )
        if self.cooldown_s < 0:
            raise InvalidArgumentError(f"cooldown_s = {self.cooldown_s} is negative", "pass seconds; the default is 60")
        if self.memory is not None:
            by_memory(self.memory)
