"""Settings of a Trainer that come from the data, the model and the user rather than from the plan."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from .._base.errors import InvalidArgumentError
from ..config import TrainingConfig

_MAX_STEPS = 500  # between two checkpoints
_CHECKPOINTS = 4  # of a run, at least
_LOGS = 25  # steps between two log lines, at most

FROM_RANDOM_WEIGHTS: dict[str, Any] = {
    "learning_rate": 1.5e-3,
    "adam_beta2": 0.98,
    # Sorted by length, few clips would come in nearly the same order in every epoch.
    "group_by_length": False,
}
"""What a tiny model with random weights needs in place of a plan's settings, which are for fine-tuning."""
RANDOM_WEIGHTS_STEPS = 1000


def schedule(steps: int, evaluates: bool, planned: int | None = None) -> dict[str, Any]:
    """How often a run of ``steps`` optimizer steps saves, evaluates and logs; ``planned``: the plan's interval."""
    interval = planned or max(1, min(_MAX_STEPS, steps // _CHECKPOINTS))
    return {
        "save_strategy": "steps",
        "save_steps": interval,
        "save_total_limit": 2,
        "eval_strategy": "steps" if evaluates else "no",
        **({"eval_steps": interval} if evaluates else {}),
        "logging_steps": max(1, min(_LOGS, steps // 10)),
        "report_to": ["tensorboard"] if find_spec("tensorboard") else [],
    }


def length_of_run(max_steps: int | None, epochs: float | None, tiny: bool) -> int | None:
    """The requested optimizer steps, None for the plan's. Raises ``InvalidArgumentError`` for less than 1."""
    if max_steps is not None and epochs is not None:
        raise InvalidArgumentError("both max_steps and epochs are given", "give one of them")
    if (max_steps is not None and max_steps < 1) or (epochs is not None and epochs <= 0):
        option = f"max_steps = {max_steps}" if max_steps is not None else f"epochs = {epochs}"
        raise InvalidArgumentError(f"{option} trains nothing", "give a number of at least 1")
    return RANDOM_WEIGHTS_STEPS if tiny and max_steps is None and epochs is None else max_steps


def override(plan: TrainingConfig, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Set the fields of ``plan`` among ``settings``; returns the other settings and the intervals."""
    fields = {field.name for field in dataclasses.fields(plan)} - {"eval_steps", "save_steps"}
    for name, value in settings.items():
        if name in fields:
            setattr(plan, name, value)
    return {name: value for name, value in settings.items() if name not in fields}
