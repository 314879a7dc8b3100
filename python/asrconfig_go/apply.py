"""``config.apply``: the plan's settings that are not the Trainer's, put where they work."""

from __future__ import annotations

from typing import Any

from .applied import Applied, AppliedSetting, report
from .backends import set_backends
from .environment import set_environment
from .plan_record import PlanRecord
from .prepare import settings_of_model


def apply(config: PlanRecord, model: Any, environment: bool, backends: bool, stacklevel: int) -> Applied:
    """See ``TrainingConfig.apply``. The environment first: it counts only before CUDA starts."""
    settings: list[AppliedSetting] = []
    if environment:
        settings += set_environment(config)
    if backends:
        settings += set_backends(config)
    if model is not None:
        settings += settings_of_model(model, config)
    return report(settings, stacklevel + 1)
