"""What to change when a training does not fit."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ._errors import AsrConfigError, UnsupportedError
from .display import gib
from .memory_settings import MemorySettings, Shape

if TYPE_CHECKING:
    from .memory_estimate import MemoryEstimate
    from .memory_model import MemoryModel

_CHANGES: tuple[tuple[str, Any], ...] = (
    ("gradient_checkpointing", True),
    ("precision", "fp16"),
    ("optimizer", "adamw_bnb_8bit"),
    ("optimizer", "adafactor"),
    ("freeze_feature_encoder", True),
)
_WORTH_SAYING = 0.97  # of the memory before the change


def smaller_batch(model: MemoryModel, shape: Shape) -> str:
    """The largest batch that fits, in words."""
    try:
        largest = model.largest_batch(shape.seconds, labels=shape.labels)
    except UnsupportedError:  # too few shapes were traced to tell of others
        return "a smaller batch: trace more shapes to learn which one fits"
    if largest == 0:
        return f"not even one clip of {shape.seconds:g} s fits with these settings"
    return f"batch={largest} is the largest that fits"


def changes_that_fit(estimate: MemoryEstimate, peak: Callable[[MemorySettings], int]) -> tuple[str, ...]:
    """One setting changed at a time, with what would be left by the analytic estimator, applied as a ratio.

    ``peak`` gives that estimator's reserved bytes. Empty when it does not know the model.
    """
    try:
        before = peak(estimate.settings)
        return tuple(words for change in _CHANGES if (words := _tried(estimate, change, peak, before)))
    except AsrConfigError:
        return ()


def _tried(
    estimate: MemoryEstimate, change: tuple[str, Any], peak: Callable[[MemorySettings], int], before: int
) -> str:
    name, value = change
    settings = estimate.settings
    if not _applies(settings, change):
        return ""
    share = peak(dataclasses.replace(settings, **{name: value})) / before
    if share > _WORTH_SAYING:
        return ""
    needed = round(estimate.peak_reserved * share) + (estimate.target.context_bytes or 0)
    verdict = "fits" if needed <= (estimate.target.available_bytes or 0) else "still too much"
    return f"{name}={value!r}: about {gib(needed)}, {verdict}"


def _applies(settings: MemorySettings, change: tuple[str, Any]) -> bool:
    """Whether the change is one: from a setting that takes more."""
    name, _ = change
    more: dict[str, tuple[Any, ...]] = {"precision": ("fp32",), "optimizer": ("adamw_torch", "adamw_torch_fused")}
    return getattr(settings, name) in more.get(name, (False,))
