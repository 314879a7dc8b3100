"""Plans adapted to a strategy of distributed training."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

from .._base.checks import checked
from .._base.choices import Strategy
from .._base.errors import InvalidArgumentError
from ..plan.plan_parts import Decision
from ..plan.plan_record import PlanRecord

STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)
"""In the order in which one would try them: each needs less memory than the one before, and sends more."""

SHARDED = ("zero1", "zero2", "zero3", "fsdp")
"""Processes whose forward and backward passes depend on each other: all must make the same number of them."""


def for_strategy(config: PlanRecord, strategy: Strategy | None = None) -> PlanRecord:
    """The plan with ``distributed`` set to ``strategy`` (default: the plan's own), and batches that it can work with.

    Sharded processes wait for each other in every forward pass, so that none may split its batches by itself: a plan
    with ``micro_batching="memory"``, or with GPUs of different size, becomes one of fixed micro-batches that fit all of
    them, with as many samples in an optimizer step as before. FSDP checkpoints each layer, on the GPU, whatever
    ``every_n_layers`` and ``offload_checkpoints``.

    Raises ``InvalidArgumentError`` for an unknown strategy, for ``"none"`` with several GPUs, and for sharding on CPUs.

    >>> config, _ = create_optimal_config(CLIPS, "wav2vec2-base", gpu="2xT4", trace=False, verbose=False)
    >>> for_strategy(config, "zero2").distributed
    'zero2'
    """
    strategy = _checked(config, config.distributed if strategy is None else strategy)
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


def _checked(config: PlanRecord, strategy: Strategy) -> Strategy:
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
    share = config.per_device_train_batch_size * config.gradient_accumulation_steps
    fits = config.micro_batch_size if config.micro_batching == "memory" else config.per_device_train_batch_size
    # A device whose whole share fits may fit more than that.
    fits = min([fits, share, *(d.micro_batch_size for d in config.devices if d.micro_batch_size < d.samples)])
    batch = max(size for size in range(1, fits + 1) if share % size == 0)
    if (batch, config.micro_batching) == (config.per_device_train_batch_size, "fixed"):
        return {}
    return {
        "per_device_train_batch_size": batch,
        "gradient_accumulation_steps": share // batch,
        "micro_batch_size": batch,
        "micro_batching": "fixed",
        "devices": tuple(replace(d, samples=share, micro_batch_size=batch) for d in config.devices),
    }
