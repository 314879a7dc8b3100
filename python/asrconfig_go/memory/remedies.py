"""Remedies for a training that does not fit."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .._base.errors import AsrConfigError, UnsupportedError
from .._base.input_units import WORDS
from ..view.units import gib
from .memory_settings import MemorySettings, Shape

if TYPE_CHECKING:
    from .estimate import MemoryEstimate
    from .opened_trace import OpenedTrace

Change = tuple[str, Any]  # a setting and its value
Asked = Callable[[MemorySettings], "MemoryEstimate"]

_CHANGES: tuple[Change, ...] = (
    ("optimizer", "adamw_torch_fused"),
    ("gradient_checkpointing", True),
    ("precision", "fp16"),
    ("freeze_feature_encoder", True),
    ("optimizer", "adafactor"),
)


def smaller_batch(model: OpenedTrace, shape: Shape) -> str:
    """The largest batch that fits, in words."""
    try:
        largest = model.largest_batch(shape.seconds, labels=shape.labels)
    except UnsupportedError:  # too few shapes were traced
        return "a smaller batch: trace more shapes to learn which one fits"
    if largest == 0:
        rows = WORDS[model.row_kind]
        return f"not even one {rows.noun} of {rows.length(shape.seconds)} fits with these settings"
    return f"batch={largest} is the largest that fits"


def changes_that_fit(settings: MemorySettings, ask: Asked) -> tuple[str, ...]:
    """Single settings with which it would fit; if there is none, as many together as it takes.

    ``ask`` returns the estimate for settings; changes that the model cannot train with are left out.
    """
    changes, fitting = [], []
    for change in _CHANGES:
        if not _applies(settings, change):
            continue
        with contextlib.suppress(AsrConfigError):
            words, fits = _tried(settings, [change], ask)
            changes.append(change)
            fitting += [words] if fits else []
    if fitting:
        return tuple(fitting)
    for count in range(2, len(changes) + 1):
        words, fits = _tried(settings, changes[:count], ask)  # of two optimizers the later one counts
        if fits or count == len(changes):
            return (words if fits else f"not even {words} would fit",)
    return ()


def _tried(settings: MemorySettings, changes: list[Change], ask: Asked) -> tuple[str, bool]:
    """The changes in words with the memory that they need, and whether it fits."""
    estimate = ask(dataclasses.replace(settings, **dict(changes)))
    words = " and ".join(f"{name}={value!r}" for name, value in dict(changes).items())
    return f"{words}: {gib(estimate.peak_device or 0)}", bool(estimate.fits)


def _applies(settings: MemorySettings, change: Change) -> bool:
    """Whether the current setting needs more memory than the change."""
    more: dict[Change, tuple[Any, ...]] = {
        ("precision", "fp16"): ("fp32",),
        ("optimizer", "adamw_torch_fused"): ("adamw_torch",),
        ("optimizer", "adafactor"): ("adamw_torch", "adamw_torch_fused"),
    }
    return getattr(settings, change[0]) in more.get(change, (False,))
