"""A strategy as settings of ``transformers.TrainingArguments``."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from .._base.choices import Strategy
from ..apply.training_arguments import default_class
from ..apply.unused_parameters import find_unused_parameters
from ..plan.plan_record import PlanRecord
from .engines import deepspeed_config, fsdp_config
from .layers import Units, fsdp_units
from .sharded_plan import for_strategy


def trainer_arguments(
    config: PlanRecord, strategy: Strategy | None = None, *, model: Any = None, layers: Sequence[str] = ()
) -> dict[str, Any]:
    """Settings for ``config.to_training_arguments(output_dir, **settings)``, as the installed transformers names them.

    ``strategy``: one of ``STRATEGIES``, default the plan's own. FSDP needs the class names of the model's ``layers``,
    or the ``model`` (a live module) to find them in. The samples of an optimizer step stay as planned; see
    ``for_strategy`` for the micro-batches. With DDP and FSDP the launcher needs nothing else.

    Raises ``InvalidArgumentError`` as ``for_strategy`` does and for FSDP without layers, ``UnsupportedError`` without
    transformers.

    >>> config, _ = create_optimal_config(CLIPS, "wav2vec2-base", gpu="2xT4", trace=False, verbose=False)
    >>> trainer_arguments(config, "ddp")["ddp_find_unused_parameters"]
    True
    """
    settled = for_strategy(config, strategy)
    settings: dict[str, Any] = {
        name: getattr(settled, name)
        for name in ("per_device_train_batch_size", "gradient_accumulation_steps")
        if getattr(settled, name) != getattr(config, name)
    }
    if not settled.gpu_name and settled.device_count > 1:
        settings |= {"use_cpu": True, "ddp_backend": "gloo"}
    if settled.distributed == "ddp":
        settings["ddp_find_unused_parameters"] = find_unused_parameters(model)
    elif settled.distributed == "fsdp":
        settings |= _fsdp(settled, fsdp_units(layers, model))
    elif settled.distributed.startswith("zero"):
        settings["deepspeed"] = deepspeed_config(int(settled.distributed[-1]))
    return settings


def _fsdp(config: PlanRecord, units: Units) -> dict[str, Any]:
    arguments_class = default_class()
    # Since it takes True, everything else is in fsdp_config; older ones take words.
    switch = True if hasattr(arguments_class, "_apply_legacy_fsdp_to_config") else "full_shard auto_wrap"
    settings: dict[str, Any] = {"fsdp": switch, "fsdp_config": fsdp_config(config, units)}
    if config.gradient_checkpointing:
        new = "activation_checkpointing" in {field.name for field in dataclasses.fields(arguments_class)}
        settings["activation_checkpointing" if new else "gradient_checkpointing"] = False
    if config.gradient_accumulation_steps > 1:
        # Else whole gradients are kept until the last micro-batch. transformers 4.46 does so all the same.
        settings["accelerator_config"] = {"gradient_accumulation_kwargs": {"sync_each_batch": True}}
    return settings
