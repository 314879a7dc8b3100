"""The record of a model's size."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, get_type_hints

from .._base import native
from .._base.checks import checked
from .._base.choices import OptimizerState
from .._base.errors import InvalidArgumentError
from .._base.records import from_json, to_json
from ..view.render import Shown


@dataclass(frozen=True, repr=False)
class ModelProfile(Shown, kind="model"):
    """A model's size. Counts are elements, sizes bytes.

    By hand, ``ModelProfile(total_parameters=…)`` is enough: ``profile_model`` derives what is left out with 4 bytes a
    parameter and a gradient, and all parameters trainable.

    >>> ModelProfile(total_parameters=300_000_000).training_bytes("sgd")
    2400000000
    """

    total_parameters: int
    trainable_parameters: int | None = None
    name: str = ""
    architecture: str = ""
    class_name: str = ""
    hidden_size: int | None = None
    layers: int | None = None
    parameter_bytes: int | None = None
    gradient_bytes: int | None = None
    optimizer_bytes: dict[str, int] = field(default_factory=dict)
    source: str = "manual"

    def training_bytes(self, optimizer: OptimizerState = "adamw") -> int:
        """Parameters, gradients and optimizer state: ``"adamw"``, ``"adamw_8bit"``, ``"adafactor"`` or ``"sgd"``."""
        complete = completed(self)
        if optimizer not in complete.optimizer_bytes:
            names = ", ".join(complete.optimizer_bytes)
            raise InvalidArgumentError(f"optimizer {optimizer!r} is not known", f"choose one of {names}")
        return (complete.parameter_bytes or 0) + (complete.gradient_bytes or 0) + complete.optimizer_bytes[optimizer]


def completed(profile: ModelProfile) -> ModelProfile:
    """A profile with the omitted fields derived."""
    if profile.optimizer_bytes:
        return profile
    return from_json(ModelProfile, native.call("model.profile", {"counts": _counts_by_hand(profile)}))


def _counts_by_hand(profile: ModelProfile) -> dict[str, Any]:
    for name, hint in get_type_hints(ModelProfile).items():
        checked(f"ModelProfile.{name}", getattr(profile, name), hint)
    counts: dict[str, Any] = dict(to_json(profile))
    del counts["optimizer_bytes"]
    counts["total"], trainable = counts.pop("total_parameters"), counts.pop("trainable_parameters")
    counts["trainable"] = counts["total"] if trainable is None else trainable
    return {name: value for name, value in counts.items() if value is not None}
