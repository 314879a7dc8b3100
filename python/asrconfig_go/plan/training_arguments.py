"""Converts a plan to the ``TrainingArguments`` of the installed transformers, 4.46 or newer.

What a version supports is read from the fields of its TrainingArguments, never from its version string. A planned
setting that the installed version or this machine does not support is left at the Trainer's default and reported by one
``UnsupportedSettingWarning``; nothing is dropped silently.

docs/reference/settings.md says where the settings go that are not TrainingArguments. ``report_to`` is left at the
Trainer's default, which is every installed reporter in transformers 4 and none in 5: pass ``report_to="tensorboard"``
to see the memory curves of ``AdaptiveMemoryCallback``.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .._core.modules import can_offload_checkpoints, checkpoint_options, find_unused_parameters, has_any_depth
from ..errors import InvalidArgumentError
from .argument_names import ArgumentFields, class_for, default_class, transformers_version
from .plan_record import BATCH_FIELDS, PREDICTED_FOR, PlanRecord, checked_setting

if TYPE_CHECKING:
    import torch
    from transformers import TrainingArguments


class UnsupportedSettingWarning(UserWarning):
    """A planned setting that the installed transformers or this machine does not support, and what is used instead."""


# Settings with the same name and meaning in TrainingArguments.
_SAME_NAME = (
    "per_device_train_batch_size", "per_device_eval_batch_size", "gradient_accumulation_steps", "learning_rate",
    "num_train_epochs", "weight_decay", "max_grad_norm", "seed", "fp16", "bf16", "tf32", "torch_compile",
    "dataloader_num_workers", "dataloader_pin_memory",
)  # fmt: skip

# Names of overrides in transformers, and the fields of a plan that other fields or predictions depend on.
_FIELDS = {name: name for name in _SAME_NAME if name in PREDICTED_FOR or name == "learning_rate"} | {
    "optim": "optimizer",
    "gradient_checkpointing": "gradient_checkpointing",
    "activation_checkpointing": "gradient_checkpointing",
}
_RECOMPUTING = {"gradient_checkpointing", "activation_checkpointing"}
LACKING = {
    "every_n_layers": "this transformers checkpoints every layer: a step takes longer, and less memory",
    "offload_checkpoints": ("this transformers keeps checkpoints on the GPU: a step takes more memory than planned"),
}
"""What transformers older than 5.23 does instead, by setting."""
REPORTED = "_asrconfig_reported"
"""The attribute of arguments that lists the planned settings that they lack: unsupported and overridden ones."""


def build(
    config: PlanRecord,
    output_dir: str | os.PathLike[str],
    overrides: dict[str, Any],
    arguments_class: type[TrainingArguments] | None = None,
    model: torch.nn.Module | None = None,
) -> TrainingArguments:
    """Build ``TrainingArguments`` from a plan, for a Trainer without the guard.

    ``overrides`` replace settings of the plan, by their older or newer names in TrainingArguments. Without
    ``arguments_class`` it is ``transformers.TrainingArguments``, or ``Seq2SeqTrainingArguments`` where an override such
    as ``predict_with_generate`` exists only there. ``model`` decides ``ddp_find_unused_parameters``. Raises
    ``InvalidArgumentError`` for an unknown name, and ``UnsupportedError`` without transformers.
    """
    fields = ArgumentFields(arguments_class or class_for(overrides))
    chosen = fields.resolve(overrides)
    if not _RECOMPUTING & chosen.keys():  # with other checkpointing, that batch may not fit
        config = config.without_guard()
    overridden = _override(config, chosen)
    planned = _planned(config, fields, chosen, model)
    wanted = set(planned)
    _leave_unsupported(config, planned, chosen)
    _copy_without_blocking(planned, chosen)
    _report_grouping(config, planned)
    arguments = fields.cls(output_dir=os.fspath(output_dir), **{**planned, **chosen})
    _report_device_count(config, arguments)
    object.__setattr__(arguments, REPORTED, (sorted(wanted - planned.keys()), sorted(overridden)))
    return arguments


def _override(config: PlanRecord, chosen: dict[str, Any]) -> set[str]:
    """Add the fields that follow from overridden ones to ``chosen``, warn of what no longer holds, return all."""
    changes = {field: chosen[name] for name, field in _FIELDS.items() if chosen.get(name) is not None}
    for field in changes.keys() & BATCH_FIELDS:
        changes[field] = checked_setting(field, changes[field])
    overrides = config.overrides
    followed = overrides.followers(config, changes)
    overrides.warn(config, changes, followed, stacklevel=4)
    chosen.update(followed)
    return {*changes, *followed}


def arguments_of(
    settings: Mapping[str, Any],
    output_dir: str | os.PathLike[str],
    arguments_class: type[TrainingArguments] | None = None,
) -> TrainingArguments:
    """Build ``arguments_class`` (default ``transformers.TrainingArguments``) from settings, without a plan."""
    fields = ArgumentFields(arguments_class or default_class())
    return fields.cls(output_dir=os.fspath(output_dir), **fields.resolve(dict(settings)))


def _planned(
    config: PlanRecord, fields: ArgumentFields, chosen: dict[str, Any], model: torch.nn.Module | None = None
) -> dict[str, Any]:
    settings = {name: getattr(config, name) for name in _SAME_NAME}
    settings["full_determinism"] = config.deterministic
    settings["optim"] = config.optimizer
    settings["group_by_length"] = _grouped(config)
    settings["gradient_checkpointing"] = config.gradient_checkpointing
    if chosen.get("warmup_steps") is None:  # in every version, a number of steps wins over a ratio
        settings["warmup_ratio"] = config.warmup_ratio
    if config.gradient_checkpointing:
        # The reentrant kind needs an input that requires gradients, which a frozen feature encoder does not produce.
        settings["gradient_checkpointing_kwargs"] = {"use_reentrant": False, **_checkpoints(config)}
    if chosen.get("dataloader_num_workers", config.dataloader_num_workers) > 0:
        settings["dataloader_prefetch_factor"] = config.dataloader_prefetch_factor
        settings["dataloader_persistent_workers"] = config.dataloader_persistent_workers
    if config.eval_accumulation_steps is not None:
        settings["eval_accumulation_steps"] = config.eval_accumulation_steps
    if not chosen.keys() & {"eval_steps", "save_steps"}:  # load_best_model_at_end requires one to divide the other
        settings |= {name: at for name in ("eval_steps", "save_steps") if (at := getattr(config, name)) is not None}
    if config.distributed == "ddp":
        settings["ddp_find_unused_parameters"] = find_unused_parameters(model)
    planned = {}
    for name, value in settings.items():
        try:
            name, value = fields.translate(name, value)
            planned[name] = value
        except InvalidArgumentError as error:
            _report(name, value, f"{error.message}; its default is used")
    return {name: value for name, value in planned.items() if name not in chosen}


def _checkpoints(config: PlanRecord) -> dict[str, Any]:
    """Which layers are checkpointed and where their inputs are kept, as far as the installed version can choose."""
    depth, offload = config.every_n_layers, config.offload_checkpoints
    if depth > 1 and not has_any_depth():
        _report("every_n_layers", depth, LACKING["every_n_layers"])
        depth = 1
    if offload and not can_offload_checkpoints():
        _report("offload_checkpoints", offload, LACKING["offload_checkpoints"])
        offload = False
    return checkpoint_options(depth, offload)


def _grouped(config: PlanRecord) -> bool:
    """Whether the Trainer groups by length: not where a ``StepSampler`` chooses the clips of a step."""
    handling = config.length_handling
    return handling == "grouped" or (handling == "random" and config.group_by_length)


def _report_grouping(config: PlanRecord, planned: dict[str, Any]) -> None:
    passed = planned.get("train_sampling_strategy", planned.get("group_by_length"))
    if passed is not None and config.group_by_length != (config.length_handling == "grouped"):
        grouping = "grouped by length" if _grouped(config) else "not grouped"
        reason = f"but length_handling = {config.length_handling!r}, so clips are {grouping}; make the two agree"
        _report("group_by_length", config.group_by_length, reason)


def _leave_unsupported(config: PlanRecord, planned: dict[str, Any], chosen: dict[str, Any]) -> None:
    """Remove what this machine or version does not support from ``planned``, with a warning each.

    Overrides are passed on as they are: the Trainer itself rejects what was asked for explicitly.
    """
    import torch
    from transformers.training_args import OptimizerNames
    from transformers.utils import is_torch_bf16_gpu_available, is_torch_tf32_available

    gpu = torch.cuda.is_available() and not chosen.get("use_cpu")
    where = "the GPU here" if gpu else "a CPU"
    if not gpu and planned.get("bf16") and not config.gpu_name:
        # The plan is for a CPU, and the Trainer requires use_cpu for bf16. A plan for a GPU loses bf16 on a CPU: it
        # would slow down most CPUs, and such a run is a trial.
        chosen.setdefault("use_cpu", True)
    elif planned.get("bf16") and not (gpu and is_torch_bf16_gpu_available()):
        _report("bf16", planned.pop("bf16"), f"{where} does not support it; training runs in 32 bit")
    if planned.get("fp16") and not gpu:
        _report("fp16", planned.pop("fp16"), "a CPU does not support it; training runs in 32 bit")
    if planned.get("tf32") and not (gpu and is_torch_tf32_available()):
        _report("tf32", planned.pop("tf32"), f"{where} does not support it")
    if not gpu:
        if planned.get("dataloader_pin_memory"):
            _report("dataloader_pin_memory", True, "there is no GPU to copy to; memory is not pinned")
        planned["dataloader_pin_memory"] = False
    if planned.get("optim") not in (None, *(member.value for member in OptimizerNames)):
        reason = f"{transformers_version()} does not know it; its default optimizer is used, whose state may be larger"
        _report("optimizer", planned.pop("optim"), reason)


def _copy_without_blocking(planned: dict[str, Any], chosen: dict[str, Any]) -> None:
    """Let accelerate copy batches from pinned memory while the GPU computes, unless an override says otherwise."""
    own = chosen.get("accelerator_config") or {}
    if {**planned, **chosen}.get("dataloader_pin_memory") and isinstance(
        own, dict
    ):  # not a file, or accelerate's own class
        chosen["accelerator_config"] = {"non_blocking": True, **own}


def _report_device_count(config: PlanRecord, arguments: TrainingArguments) -> None:
    from ..predict.trainer_settings import device_count

    devices = device_count(arguments)
    effective = arguments.per_device_train_batch_size * arguments.gradient_accumulation_steps * devices
    if devices == config.device_count or effective == config.effective_batch_size:
        return
    reason = (
        f"this run has {devices} device(s), so the effective batch is {effective} instead of "
        f"{config.effective_batch_size}; plan for this machine, with device_count={devices}"
    )
    _report("device_count", config.device_count, reason)


def _report(setting: str, value: object, reason: str) -> None:
    # Points at the caller of to_training_arguments: _report, a helper, build, to_training_arguments.
    warnings.warn(f"planned {setting} = {value!r}: {reason}", UnsupportedSettingWarning, stacklevel=5)
