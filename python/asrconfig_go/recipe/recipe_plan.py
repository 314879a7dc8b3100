"""The plan of a fine-tuning: new, given, or that of the resumed run."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from ..config import TrainingConfig
from ..manager import ASRConfigManager
from ..optimal import create_optimal_config
from ..plan.plan_record import FILE
from ..view.units import say
from .fine_tune_options import FineTuneOptions
from .speech_data import SpeechData
from .trainers import speech_settings


def plan_of(
    options: FineTuneOptions, data: SpeechData, model: Any, processor: Any
) -> tuple[TrainingConfig, ASRConfigManager]:
    """The plan and the manager that accompanies the training, which both know the data and the model."""
    given = options.config
    if given is None and options.resume is not False:
        saved = (options.output if options.resume is True else Path(options.resume).resolve().parent) / FILE
        given = saved if saved.is_file() else None
    if given is not None:
        return _given(given, options, data, model)
    return create_optimal_config(
        data.train,
        model,
        model_name=options.model,
        target_batch_size=options.batch,
        gpu=options.gpu,
        seed=options.seed,
        processor=processor.feature_extractor,
        verbose=options.verbose,
        eval_samples=0 if data.evaluation is None else len(data.evaluation),
        generation_max_length=speech_settings(processor, model, data).get("generation_max_length"),
    )


def _given(
    given: Any, options: FineTuneOptions, data: SpeechData, model: Any
) -> tuple[TrainingConfig, ASRConfigManager]:
    manager = ASRConfigManager(gpu=options.gpu)
    say(options.verbose, "Hardware", manager.hardware)
    say(options.verbose, "Dataset", manager.profile_dataset(data.train, progress=options.verbose))
    say(options.verbose, "Model", manager.profile_model(model, name=options.model))
    manager.config = copy.deepcopy(given) if isinstance(given, TrainingConfig) else TrainingConfig.load(given)
    say(options.verbose, "Plan", manager.config)
    return manager.config, manager
