"""A plan with what it was made from: what an explanation is about."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .._base.errors import InvalidArgumentError
from ..data.labels import LabelReport
from ..data.profile import DatasetProfile
from ..machine.hardware import HardwareProfile
from ..machine.model_profile import ModelProfile
from ..plan.plan_record import PlanRecord

_KINDS: dict[str, tuple[type, str]] = {
    "config": (PlanRecord, "TrainingConfig"),  # what people know it as
    "hardware": (HardwareProfile, "HardwareProfile"),
    "dataset": (DatasetProfile, "DatasetProfile"),
    "model": (ModelProfile, "ModelProfile"),
    "labels": (LabelReport, "LabelReport"),
}


@dataclass(frozen=True, repr=False)
class ExplainedPlan:
    """A plan with its inputs; all but ``config`` may be unknown.

    ``config`` is copied: later overrides do not change it. ``labels`` is what ``check_labels`` found, and
    ``model_config`` the model's ``config.json`` as a dictionary; cautions about labels, losses and evaluation rest on
    them. ``guarded``: whether the training will have the guard, which ``manager.train`` and ``asrconfig train`` attach.
    """

    config: PlanRecord
    hardware: HardwareProfile | None = None
    dataset: DatasetProfile | None = None
    model: ModelProfile | None = None
    labels: LabelReport | None = None
    model_config: Mapping[str, Any] | None = None
    guarded: bool = True

    def __post_init__(self) -> None:
        for name, (kind, called) in _KINDS.items():
            value = getattr(self, name)
            if not isinstance(value, kind) and (name == "config" or value is not None):
                raise InvalidArgumentError(
                    f"{name} = {type(value).__name__} is not a {called}", "pass what the function of that name gave"
                )
        object.__setattr__(self, "config", copy.copy(self.config))
