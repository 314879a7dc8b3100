"""The result of a benchmark as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from .measurements import OptionResult, SideResult


def side_json(side: SideResult) -> dict[str, Any]:
    """One side."""
    spreads = {name: getattr(side, name) for name in ("clips_per_s", "audio_per_s", "step_s", "cpu_use")}
    figures = {name: getattr(side, name) for name in ("padding", "shares", "queueing", "peak_bytes")}
    return asdict(side) | {name: value and asdict(value) for name, value in spreads.items()} | figures


def option_json(option: OptionResult) -> dict[str, Any]:
    """One change; ``verdict`` is ``better`` in words."""
    return {
        **asdict(option),
        "side": None if option.side is None else side_json(option.side),
        "better": bool(option.better),
        "verdict": option.better or ("slower" if option.worse else "no clear change"),
    }
