"""Requests to the library about batches."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

from .._base.checks import checked
from .._base.choices import StepMode
from .._base.errors import InvalidArgumentError
from .memory_limits import FitsByLength, memory_table, rows

BUCKETS = 30


class BatchingWarning(UserWarning):
    """Warns that steps of clips of similar length would hurt here, and why."""


def recipe(
    seconds: array[float],
    memory: FitsByLength | Sequence[tuple[float, int]] | None,
    *,
    mode: StepMode,
    step_samples: int,
    ranks: int,
    seed: int,
    buckets: int,
    overhead_s: float,
    drop_last: bool,
) -> dict[str, Any]:
    """The options of steps for the library, which checks their ranges."""
    if not 0 <= checked("seed", seed, int) < 1 << 64:
        raise InvalidArgumentError(f"seed = {seed} is out of range", "choose 0 or more, below 2**64")
    model: Any = memory
    table = memory_table(model, max(seconds, default=1.0)) if hasattr(memory, "largest_batch") else model
    return {
        "mode": checked("mode", mode, str),
        "step_samples": checked("step_samples", step_samples, int),
        "ranks": checked("ranks", ranks, int),
        "seed": seed,
        "epoch": 0,
        "buckets": checked("buckets", buckets, int),
        "drop_last": checked("drop_last", drop_last, bool),
        "overhead_s": checked("overhead_s", overhead_s, float),
        "memory": None if table is None else rows(table),
    }
