"""Whether what a model's loss divides by is known before it trains, so that a plan may split its steps."""

from __future__ import annotations

from typing import Any

from .._base.errors import AsrConfigError
from ..losses.loss_table import known_architecture, loss_of
from ..machine.model_profile import ModelProfile


def knows_loss(model: Any) -> bool:
    """Whether the table of losses has the loss of ``model``, which is whatever ``profile_model`` takes.

    Modules are inspected, as a user's class may compute another loss; anything else is known by the class that
    fine-tuning uses.
    """
    from ..machine.model_source import is_module, model_config

    if is_module(model):
        return loss_of(model) is not None
    if isinstance(model, ModelProfile):
        return known_architecture(model.class_name)
    try:
        _, _, class_name = model_config(model)
    except AsrConfigError:
        return False
    return known_architecture(class_name)
