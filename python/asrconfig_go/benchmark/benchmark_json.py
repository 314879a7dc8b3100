"""The result of a benchmark as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from .measurements import OptionResult, SideResult, Spread


def _spread(spread: Spread | None) -> dict[str, float] | None:
    return None if spread is None else asdict(spread)


def side_json(side: SideResult) -> dict[str, Any]:
    """One side."""
    found = asdict(side)
    found |= {name: _spread(getattr(side, name)) for name in ("clips_per_s", "audio_per_s", "step_s", "cpu_use")}
    return {
        **found,
        "padding": side.padding,
        "shares": side.shares,
        "queueing": side.queueing,
        "peak_bytes": side.peak_bytes,
    }


def option_json(each: OptionResult) -> dict[str, Any]:
    """One change; ``verdict`` is ``better`` in words."""
    return {
        **asdict(each),
        "side": None if each.side is None else side_json(each.side),
        "better": bool(each.better),
        "verdict": each.better or ("slower" if each.worse else "no clear change"),
    }
