"""A strategy for several GPUs as settings of transformers, accelerate, DeepSpeed and FSDP."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, get_args

from .._core.checks import checked
from .._core.declared import LIVE_PARAMETERS, PREFETCH_BUCKET, REDUCE_BUCKET, Strategy
from .._core.modules import find_unused_parameters
from ..errors import InvalidArgumentError
from .argument_names import default_class
from .plan_record import BATCH_FIELDS, RECOMPUTING, PlanRecord
from .plan_records import Decision

if TYPE_CHECKING:
    import torch

_SMALL = 0.1  # of the model: what holds less is not worth a unit of its own


def layer_classes(model: torch.nn.Module) -> tuple[str, ...]:
    """Return the class names of a model's repeated layers, which FSDP shards by.

    They are the classes that fill a ``ModuleList`` and together hold at least a tenth of the parameters; transformers
    names them for a part of its speech models only (``_no_split_modules``).

    Args:
        model: A live module.

    Returns:
        The names in alphabetical order, such as ``("Wav2Vec2EncoderLayer",)``.

    Raises:
        InvalidArgumentError: ``model`` is no torch module.

    Example:
        >>> from asrconfig_go.recipe.model_building import small_model
        >>> layer_classes(small_model(tokens=12, seed=0))
        ('Wav2Vec2EncoderLayerStableLayerNorm', 'Wav2Vec2LayerNormConvLayer')
    """
    import torch

    if not isinstance(model, torch.nn.Module):
        raise InvalidArgumentError(
            f"{type(model).__name__} is not a torch module", "pass the model that will be trained"
        )
    parameters: Counter[str] = Counter()
    for module in model.modules():
        if isinstance(module, torch.nn.ModuleList):
            for layer in module:
                parameters[type(layer).__name__] += sum(p.numel() for p in layer.parameters())
    total = sum(p.numel() for p in model.parameters())
    return tuple(sorted(name for name, count in parameters.items() if count >= _SMALL * total))


@dataclass(frozen=True)
class Units:
    """The layers that FSDP shards by, and the version of FSDP."""

    layers: tuple[str, ...]
    version: int


def fsdp_units(layers: Sequence[str], model: torch.nn.Module | None) -> Units:
    """The units for these class names, or for the model's own.

    Version 2, but 1 for models without text embeddings (wav2vec2 and similar): accelerate 1.15 asks each model for
    them, and theirs raise ``NotImplementedError``. Without the model its layers' names are needed.
    """
    names = _checked_layers(layers, model)
    if model is None:
        return Units(names, 2 if any(name.startswith("Whisper") for name in names) else 1)
    try:
        getattr(model, "get_input_embeddings", lambda: None)()
    except NotImplementedError:
        return Units(names, 1)
    return Units(names, 2)


def _checked_layers(layers: Sequence[str], model: torch.nn.Module | None) -> tuple[str, ...]:
    if isinstance(layers, str):
        raise InvalidArgumentError(f"layers = {layers!r} is a str", "pass a list of class names")
    names = tuple(layers) or (layer_classes(model) if model is not None else ())
    if not names or not all(isinstance(name, str) and name.isidentifier() for name in names):
        raise InvalidArgumentError(
            "fsdp needs the class names of the model's layers, which it gathers one by one",
            'pass model=, or layers=["Wav2Vec2EncoderLayerStableLayerNorm"] (XLS-R), ["Wav2Vec2EncoderLayer"] '
            '(wav2vec2-base), ["WhisperEncoderLayer", "WhisperDecoderLayer"]',
        )
    return names


STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)
"""In the order in which one would try them: each needs less memory than the one before, and sends more."""

SHARDED = ("zero1", "zero2", "zero3", "fsdp")
"""Processes whose forward and backward passes depend on each other: all must make the same number of them."""


def for_strategy(config: PlanRecord, strategy: Strategy | None = None) -> PlanRecord:
    """Return the plan for another way to share the model among GPUs, with batches that it can work with.

    Sharded processes wait for each other in every forward pass, so that none may split its batches on its own: a plan
    with ``micro_batching="memory"``, or with GPUs of different size, becomes one of fixed micro-batches that fit all of
    them, with as many samples in an optimizer step as before. FSDP checkpoints each layer, on the GPU, whatever
    ``every_n_layers`` and ``offload_checkpoints``.

    Args:
        config: The plan.
        strategy: One of ``STRATEGIES``; None for the plan's own.

    Returns:
        The plan with ``distributed`` set to the strategy; ``config`` itself where nothing differs.

    Raises:
        InvalidArgumentError: The strategy is unknown, is ``"none"`` with several GPUs, or shards on CPUs.

    Example:
        >>> config, _ = create_optimal_config(CLIPS, "wav2vec2-base", gpu="2xT4", trace=False, verbose=False)
        >>> for_strategy(config, "zero2").distributed
        'zero2'
    """
    strategy = _checked_strategy(config, config.distributed if strategy is None else strategy)
    changes: dict[str, Any] = {}
    if strategy in SHARDED:
        changes = _fixed_batches(config)
    if strategy == "fsdp":  # whose own checkpointing is of each layer, and on the GPU
        changes |= {"every_n_layers": 1, "offload_checkpoints": False}
    if strategy == config.distributed:
        return replace(config, **changes) if changes else config
    reason = f"asked for, instead of the plan's {config.distributed}"
    decisions = [d for d in config.decisions if d.setting != "distributed"]
    warning = f"Memory and times were predicted for {config.distributed}, not for {strategy}."
    return replace(
        config,
        **changes,
        distributed=strategy,
        decisions=(*decisions, Decision("distributed", strategy, reason)),
        warnings=(*config.warnings, warning),
    )


def _checked_strategy(config: PlanRecord, strategy: Strategy) -> Strategy:
    checked("strategy", strategy, Strategy)
    if strategy == "none" and config.device_count > 1:
        raise InvalidArgumentError(
            f"strategy 'none' for {config.device_count} GPUs that share one optimizer step", "choose ddp or another"
        )
    if strategy in SHARDED and not config.gpu_name:
        raise InvalidArgumentError(
            f"{strategy} for a plan without a GPU: accelerate enables DeepSpeed and FSDP on GPUs only",
            "choose ddp, or plan for a GPU",
        )
    return strategy


def _fixed_batches(config: PlanRecord) -> dict[str, Any]:
    alone = config.without_guard()
    recomputing = {name: getattr(alone, name) for name in RECOMPUTING}
    share = alone.per_device_train_batch_size * alone.gradient_accumulation_steps
    fits = min(alone.micro_batch_size, alone.per_device_train_batch_size)
    if all(getattr(config, name) == value for name, value in recomputing.items()):
        # A device whose whole share fits may fit more than that.
        fits = min([fits, *(d.micro_batch_size for d in config.devices if d.micro_batch_size < d.samples)])
    batch = max(size for size in range(1, fits + 1) if share % size == 0)
    if (batch, config.micro_batching) == (config.per_device_train_batch_size, "fixed"):
        return {}
    return {
        "per_device_train_batch_size": batch,
        "gradient_accumulation_steps": share // batch,
        "micro_batch_size": batch,
        "micro_batching": "fixed",
        **recomputing,
        "unguarded": None,
        "devices": tuple(replace(d, samples=share, micro_batch_size=batch) for d in config.devices),
    }


def deepspeed_config(stage: int) -> dict[str, Any]:
    """DeepSpeed's configuration for the Trainer.

    ``"auto"`` is what the Trainer fills in from its arguments, so that batch, accumulation, clipping and precision
    cannot differ. Optimizer and schedule are the Trainer's.
    """
    zero: dict[str, Any] = {
        "stage": stage,
        "contiguous_gradients": True,
        "overlap_comm": stage == 3,  # in stages 1 and 2 it needs a second bucket
        "reduce_scatter": True,
        "reduce_bucket_size": REDUCE_BUCKET,
        "allgather_bucket_size": REDUCE_BUCKET,
    }
    if stage == 3:
        zero |= {
            "stage3_prefetch_bucket_size": PREFETCH_BUCKET,
            "stage3_max_live_parameters": LIVE_PARAMETERS,
            "stage3_max_reuse_distance": LIVE_PARAMETERS,
            "stage3_gather_16bit_weights_on_model_save": True,  # without it checkpoints hold no usable weights
        }
    return {
        "train_batch_size": "auto",
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto",
        "fp16": {"enabled": "auto", "loss_scale": 0, "initial_scale_power": 16, "loss_scale_window": 1000},
        "bf16": {"enabled": "auto"},
        "zero_optimization": zero,
        "zero_allow_untested_optimizer": True,  # the Trainer's, 8-bit ones among them
    }


def fsdp_config(config: PlanRecord, units: Units) -> dict[str, Any]:
    """FSDP's settings under the Trainer's names; accelerate prefixes them with ``fsdp_``.

    Recomputation is FSDP's own, since the Trainer's would gather each layer again.
    """
    return {
        "version": units.version,
        "reshard_after_forward": True if units.version == 2 else "full_shard",
        "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "transformer_layer_cls_to_wrap": list(units.layers),
        "activation_checkpointing": config.gradient_checkpointing,
        "cpu_ram_efficient_loading": False,
        "state_dict_type": "FULL_STATE_DICT",
    }


def accelerate_config(config: PlanRecord, machines: int, units: Units | None, deepspeed_file: str) -> dict[str, Any]:
    """The content of accelerate's file, for a plan whose ``distributed`` is settled.

    accelerate starts several processes on CPUs by MPI only; named as GPUs they are started by torchrun, and the
    Trainer's ``use_cpu`` makes them what they are. DeepSpeed's precision comes from its own file: accelerate refuses
    to be passed twice.
    """
    kind = {"none": "NO", "ddp": "MULTI_GPU", "fsdp": "FSDP"}.get(config.distributed, "DEEPSPEED")
    content: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": kind,
        "num_machines": machines,
        "num_processes": config.device_count,
        "machine_rank": 0,
        "main_training_function": "main",
        "use_cpu": not config.gpu_name,
    }
    if kind == "DEEPSPEED":
        content["deepspeed_config"] = {
            "deepspeed_config_file": deepspeed_file,
            "zero3_init_flag": config.distributed == "zero3",
            "deepspeed_multinode_launcher": "standard",
        }
        return content
    content["mixed_precision"] = "no" if config.precision == "fp32" else config.precision
    if units:
        settings = fsdp_config(config, units)
        settings["transformer_layer_cls_to_wrap"] = ",".join(units.layers)
        content["fsdp_config"] = {f"fsdp_{name}": value for name, value in settings.items()}
    return content


def trainer_arguments(
    config: PlanRecord,
    strategy: Strategy | None = None,
    *,
    model: torch.nn.Module | None = None,
    layers: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the settings of a strategy for ``config.to_training_arguments(output_dir, **settings)``.

    They have the names of the installed transformers. The samples of an optimizer step stay as planned; see
    ``for_strategy`` for the micro-batches. With DDP and FSDP the launcher needs nothing else.

    Args:
        config: The plan.
        strategy: One of ``STRATEGIES``; None for the plan's own.
        model: The live module, in which FSDP's layers are found. With DDP it decides ``ddp_find_unused_parameters``;
            without it, that is True.
        layers: The class names of the layers that FSDP shards by, instead of those of ``model``.

    Returns:
        The settings by their names in ``TrainingArguments``.

    Raises:
        InvalidArgumentError: As ``for_strategy``, and for FSDP without layers.
        UnsupportedError: transformers is not installed, which FSDP requires.

    Example:
        >>> config, _ = create_optimal_config(CLIPS, "wav2vec2-base", gpu="2xT4", trace=False, verbose=False)
        >>> trainer_arguments(config, "ddp")["ddp_find_unused_parameters"]
        True
    """
    settled, alone = for_strategy(config, strategy), config.without_guard()
    settings: dict[str, Any] = {
        name: getattr(settled, name)
        for name in BATCH_FIELDS
        if settled.distributed in SHARDED and getattr(settled, name) != getattr(alone, name)
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
        # Else whole gradients are kept until the last micro-batch. transformers 4.46 does so anyway.
        settings["accelerator_config"] = {"gradient_accumulation_kwargs": {"sync_each_batch": True}}
    return settings
