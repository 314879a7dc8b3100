"""Overrides of a plan: which settings follow, and what no longer holds."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .._base.input_units import WORDS

PREDICTED_FOR = frozenset(
    (
        "per_device_train_batch_size", "gradient_accumulation_steps", "device_count", "micro_batching",
        "micro_batch_size", "fp16", "bf16", "tf32", "gradient_checkpointing", "every_n_layers", "offload_checkpoints",
        "torch_compile", "attn_implementation", "freeze_feature_encoder", "lora_rank", "optimizer", "length_handling",
        "group_by_length", "max_length_s", "chunk_length_s", "distributed",
    )
)  # fmt: skip
"""Predicted memory or times no longer hold once one of these is overridden."""
_BATCH, _STEPS, _RATE = "per_device_train_batch_size", "gradient_accumulation_steps", "learning_rate"
_OF_A_STEP = (_BATCH, _STEPS, "device_count")
_MAX_STEPS = 65_536
_CHECK = "plan again with what create_optimal_config takes of it, or check with estimate_memory before you train"


class OverrideWarning(UserWarning):
    """A setting of a plan was overridden, and predictions or the learning rate are still those of the plan."""


@dataclass
class Overrides:
    """What the user has set in a plan, and how many clips an optimizer step had before."""

    effective: int
    chosen: set[str] = field(default_factory=set)

    def followers(self, config: Any, changes: Mapping[str, Any]) -> dict[str, Any]:
        """The settings that follow ``changes`` and that the user has not set.

        Accumulation follows the batch, so that a step keeps its clips; of fp16 and bf16 one turns the other off.
        """
        chosen, followers = self.chosen | changes.keys(), dict[str, Any]()
        if _BATCH in changes and _STEPS not in chosen:
            even = round(self.effective / (changes[_BATCH] * config.device_count))
            followers[_STEPS] = min(_MAX_STEPS, max(1, even))
        for name, other in (("fp16", "bf16"), ("bf16", "fp16")):
            if changes.get(name) and other not in changes and getattr(config, other):
                followers[other] = False
        return {name: value for name, value in followers.items() if value != getattr(config, name)}

    def warn(self, config: Any, changes: Mapping[str, Any], followed: Mapping[str, Any], stacklevel: int) -> None:
        """Warn of what no longer holds, where ``changes`` and what follows them change anything of ``config``.

        ``stacklevel`` 1 is the caller.
        """
        different = {name: value for name, value in changes.items() if value != getattr(config, name)}
        after = {**different, **followed}
        words = [f"{name} = {value!r} follows" for name, value in followed.items()]
        if set(_OF_A_STEP) & after.keys():
            clips = math.prod(after.get(name, getattr(config, name)) for name in _OF_A_STEP)
            words.append(self._step_words(config, clips, _RATE in self.chosen | changes.keys()))
        if PREDICTED_FOR & after.keys():
            words.append("predicted memory and times are those of the plan")
        if words:
            named = ", ".join(
                f"{name} = {value!r} instead of {getattr(config, name)!r}" for name, value in different.items()
            )
            warnings.warn(f"{named}: {'; '.join(words)} → {_CHECK}", OverrideWarning, stacklevel=stacklevel + 1)

    def _step_words(self, config: Any, clips: int, rate_chosen: bool) -> str:
        planned, words = self.effective, WORDS[config.row_kind]
        if clips == planned:
            return f"a step keeps its {words.count(planned)}"
        step = f"a step has {words.count(clips)} instead of {planned}"
        power = {"sqrt": 0.5, "linear": 1.0}.get(config.lr_scaling)
        if power is None or rate_chosen:
            return step
        scaled = config.learning_rate * (clips / planned) ** power
        rate = f"learning_rate = {config.learning_rate:.3g} is for {planned}"
        return f"{step}, and {rate}: {config.lr_scaling} scaling gives {scaled:.3g} for {clips}"
