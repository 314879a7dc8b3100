"""A plan for collators and custom loops: clips that are kept, DataLoader settings, and the number of steps."""

from __future__ import annotations

import math
import multiprocessing
from collections.abc import Callable
from typing import Any

from .._base.checks import checked
from .._base.errors import InvalidArgumentError
from ..machine.hardware import HardwareProfile
from ..plan.plan_record import PlanRecord


def loader_settings(config: PlanRecord, start_method: str | None) -> dict[str, Any]:
    """See ``TrainingConfig.loader_settings``."""
    import torch

    settings: dict[str, Any] = {
        "num_workers": config.dataloader_num_workers,
        # Without a GPU there is nothing to copy to, and torch warns of every loader.
        "pin_memory": config.dataloader_pin_memory and torch.cuda.is_available(),
    }
    known = multiprocessing.get_all_start_methods()
    if start_method is not None and start_method not in known:
        raise InvalidArgumentError(
            f"start_method = {start_method!r} is not known here", "choose one of " + ", ".join(known)
        )
    if config.dataloader_num_workers > 0:  # torch refuses these without workers
        settings["persistent_workers"] = config.dataloader_persistent_workers
        if config.dataloader_prefetch_factor is not None:
            settings["prefetch_factor"] = config.dataloader_prefetch_factor
        if start_method is not None:
            settings["multiprocessing_context"] = start_method
    return settings


def clip_loader(config: PlanRecord) -> Callable[[Any], Any]:
    """See ``TrainingConfig.clip_loader``."""
    from ..loading import DecodedCache, load_audio

    if not config.cache_dataset:
        return load_audio
    free = HardwareProfile.detect().memory.available_bytes
    return DecodedCache(max(1, int(free * config.safety_margin / max(1, config.dataloader_num_workers))))


def max_steps(config: PlanRecord, clips: int) -> int:
    """See ``TrainingConfig.max_steps``; every epoch is rounded up, as newer Trainers do."""
    if checked("clips", clips, int) < 1:
        raise InvalidArgumentError(f"clips = {clips} is less than one", "pass the number of clips to train on")
    batches = math.ceil(clips / (config.per_device_train_batch_size * config.device_count))
    return math.ceil(config.num_train_epochs * math.ceil(batches / config.gradient_accumulation_steps))
