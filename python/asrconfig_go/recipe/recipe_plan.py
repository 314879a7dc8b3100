"""The plan of a fine-tuning: made for it, given, or that of the run which is resumed."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from ..config import TrainingConfig
from ..manager import ASRConfigManager
from ..optimal import create_optimal_config
from ..view.units import say
from .fine_tune_options import Wishes
from .speech_data import SpeechData

PLAN = "training_config.json"


def plan_of(wishes: Wishes, data: SpeechData, model: Any, processor: Any) -> tuple[TrainingConfig, ASRConfigManager]:
    """The plan and the manager that accompanies the training, which both know the data and the model."""
    given = wishes.config
    if given is None and wishes.resume is not False:
        saved = (wishes.output if wishes.resume is True else Path(wishes.resume).resolve().parent) / PLAN
        given = saved if saved.is_file() else None
    if given is not None:
        return _given(given, wishes, data, model)
    return create_optimal_config(
        data.train,
        model,
        model_name=wishes.model,
        target_batch_size=wishes.batch,
        gpu=wishes.gpu,
        seed=wishes.seed,
        processor=processor.feature_extractor,
        verbose=wishes.verbose,
    )


def _given(given: Any, wishes: Wishes, data: SpeechData, model: Any) -> tuple[TrainingConfig, ASRConfigManager]:
    manager = ASRConfigManager(gpu=wishes.gpu)
    say(wishes.verbose, "Hardware", manager.hardware)
    say(wishes.verbose, "Dataset", manager.profile_dataset(data.train, progress=wishes.verbose))
    say(wishes.verbose, "Model", manager.profile_model(model, name=wishes.model))
    manager.config = copy.deepcopy(given) if isinstance(given, TrainingConfig) else TrainingConfig.load(given)
    say(wishes.verbose, "Plan", manager.config)
    return manager.config, manager
