"""The plan of a fine-tuning: new, given, or that of the resumed run."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from .._base.errors import InvalidArgumentError
from .._base.wrapped_model import bare, lora_rank
from ..config import TrainingConfig
from ..loading.processor_batches import asked_language
from ..loading.prompts import extractor_of
from ..manager import ASRConfigManager
from ..memory.recording import generation_facts
from ..optimal import create_optimal_config
from ..plan.plan_record import FILE
from ..view.units import say
from .fine_tune_options import FineTuneOptions
from .model_collator import make_collator
from .speech_data import SpeechData
from .trainers import speech_settings


def plan_of(
    options: FineTuneOptions, data: SpeechData, model: Any, processor: Any
) -> tuple[TrainingConfig, ASRConfigManager]:
    """The plan and the manager that accompanies the training, which both know the data and the model."""
    saved = given_plan(options)
    if saved is None:
        config, manager = _new_plan(options, data, model, processor)
    else:
        config, manager = saved, ASRConfigManager(gpu=options.gpu)
        manager.profile_dataset(data.train, progress=options.verbose)
        manager.profile_model(model, name=options.model)
        manager.config = saved
    object.__setattr__(config, "lora_rank", lora_rank(model))  # a fact, which the published rules leave out
    say(options.verbose, "Plan", manager.explain())
    return config, manager


def given_plan(options: FineTuneOptions) -> TrainingConfig | None:
    """A copy of the plan that was given, or that of the resumed run; None for a new one.

    Raises ``InvalidArgumentError`` where its adapters differ from the requested ones.
    """
    source = options.config
    if source is None and options.resume is not False:
        saved = (options.output if options.resume is True else Path(options.resume).resolve().parent) / FILE
        source = saved if saved.is_file() else None
    if source is None:
        return None
    plan = copy.deepcopy(source) if isinstance(source, TrainingConfig) else TrainingConfig.load(source)
    if options.lora_rank not in (None, 0, plan.lora_rank):
        raise InvalidArgumentError(
            f"lora_rank is {options.lora_rank}, and that of the plan is {plan.lora_rank}",
            "leave lora_rank (--lora) out, or plan again",
        )
    return plan


def _new_plan(
    options: FineTuneOptions, data: SpeechData, model: Any, processor: Any
) -> tuple[TrainingConfig, ASRConfigManager]:
    # The longest text of an evaluation, where a plan knows what generating it takes.
    generates = generation_facts(bare(model).config)
    longest = speech_settings(model, data).get("generation_max_length") if generates else None
    return create_optimal_config(
        data.train, model, model_name=options.model, target_batch_size=options.batch, gpu=options.gpu,
        seed=options.seed, processor=extractor_of(processor),
        collator=make_collator(processor, model, **asked_language(processor, options.language)),
        verbose=False, progress=options.verbose,
        eval_samples=0 if data.evaluation is None else len(data.evaluation), generation_max_length=longest,
    )  # fmt: skip
