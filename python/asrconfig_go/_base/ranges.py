"""An estimate with its range."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Range:
    """An estimate: ``low`` ≤ ``likely`` ≤ ``high``."""

    low: float
    likely: float
    high: float
