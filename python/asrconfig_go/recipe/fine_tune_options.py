"""The options of a fine-tuning."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._base.defaults import TARGET_BATCH_SIZE
from ..config import TrainingConfig
from ..demo.tiny_models import TINY
from ..training.deadline import deadline_of
from .model_kinds import family
from .trainer_settings import length_of_run

_LLM_RANK = 16
_TINY_BATCH = 8  # with few clips, more and smaller steps learn faster than larger ones


@dataclass(frozen=True)
class FineTuneOptions:
    """See ``fine_tune``."""

    model: str
    output: Path
    language: str | None
    clean: bool | None
    align: str | None
    epochs: float | None
    max_steps: int | None
    target_batch_size: int | None
    lora_rank: int | None
    bits: int | None
    gpu: str | None
    config: TrainingConfig | str | os.PathLike[str] | None
    settings: dict[str, Any]
    resume: bool | str | os.PathLike[str]
    save_by: str | None
    push: bool | str
    token: str | None
    callbacks: tuple[Any, ...]
    profile: int | None
    seed: int
    verbose: bool

    def __post_init__(self) -> None:
        length_of_run(self.max_steps, self.epochs, self.tiny)
        if self.save_by is not None:
            deadline_of(self.save_by)
        if self.profile is not None:
            from ..training.step_profile import check_profile

            check_profile(self.profile)

    @property
    def tiny(self) -> bool:
        """Whether the model is one of those with random weights."""
        return self.model in TINY

    @property
    def rank(self) -> int:
        """That of the adapters: of a published audio LLM some by default, of other models none."""
        if self.lora_rank is not None:
            return self.lora_rank
        return 0 if self.tiny or family(self.model) != "audio-llm" else _LLM_RANK

    @property
    def steps(self) -> int | None:
        """Optimizer steps, None for those of the plan's epochs."""
        return length_of_run(self.max_steps, self.epochs, self.tiny)

    @property
    def batch(self) -> int:
        """Clips of an optimizer step."""
        return self.target_batch_size or (_TINY_BATCH if self.tiny else TARGET_BATCH_SIZE)
