"""``config.apply``: applies the plan's settings that the Trainer does not set."""

from __future__ import annotations

from typing import Any

from ..plan.plan_record import PlanRecord
from .applied_settings import Applied, AppliedSetting, report
from .environment import set_environment
from .model_preparation import settings_of_model
from .torch_backends import set_backends


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
