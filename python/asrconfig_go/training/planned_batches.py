"""Applies a plan's steps to a Trainer: steps of chosen clips, split by memory."""

from __future__ import annotations

import logging
import math
import warnings
from array import array
from collections.abc import Callable
from typing import Any

from .._base.errors import AsrConfigError
from .._base.input_units import WORDS
from .._base.listing import listed
from ..plan.plan_parts import planned_device
from ..plan.plan_record import PlanRecord
from ..plan.traced_answers import HOST_BYTES

logger: logging.Logger = logging.getLogger(__name__)

_GRADIENT_BYTES = 4


class PlanNotFollowedWarning(UserWarning):
    """A part of the plan cannot be carried out by this Trainer; what is done instead."""


def memory_limit(memory: Any, trainer: Any, config: PlanRecord | None, margin: float) -> int | None:
    """Bytes that the allocator may reserve: the margin of what is available, without the memory outside of it.

    DDP's buckets, a second copy of the gradients, are outside of it, too. Of unequal cards each process takes its own.
    Without a GPU, the plan's budget for host RAM.
    """
    available, context = memory.target.available_bytes, memory.target.context_bytes
    if available is None or context is None:
        return config.budget_bytes - HOST_BYTES if config is not None and config.budget_bytes > HOST_BYTES else None
    allowed: int = int(available * margin)
    devices = () if config is None else config.devices
    if len({device.budget_bytes for device in devices}) > 1:  # a memory model is of the tightest card
        own = planned_device(devices, trainer.args.local_process_index)
        allowed = allowed if own is None else own.budget_bytes
    allowed -= int(context)
    if trainer.args.world_size > 1:
        allowed -= _GRADIENT_BYTES * sum(p.numel() for p in trainer.model.parameters() if p.requires_grad)
    return max(1, allowed)


def use_planned_batches(
    trainer: Any, config: PlanRecord, durations: array[float], memory: Any, limit: int | None
) -> Callable[[], None]:
    """Let ``trainer`` take the plan's steps: a process's whole share at once, split by ``memory``, if any.

    ``durations`` are the seconds of the clips of the training set, in its order. Without them, where the Trainer cannot
    take chosen clips, or where the guard does not know what the loss divides by, steps stay in random order with the
    Trainer's own batches, and a warning says why. Returns the function that undoes it.
    """
    from ..batching import StepSampler, memory_table, use_batches
    from ..streams import StreamBatches
    from .guarded_training import use_batch

    args, knows_rule = trainer.args, _knows_rule(trainer)
    before = (args.per_device_train_batch_size, args.gradient_accumulation_steps)
    share = before[0] * before[1]
    if isinstance(trainer.train_dataset, StreamBatches):
        use_batch(trainer, (share, 1) if knows_rule else before)
        return lambda: use_batch(trainer, before)
    if not knows_rule:
        _not_followed(config, "what the loss divides by is not known: guard.notes says why")
        return lambda: None
    seconds = _clip_seconds(trainer, config, durations)
    if seconds is None:
        return lambda: None
    mode = "random" if config.length_handling == "grouped" else config.length_handling
    table = None
    if mode == "packed":  # without a memory model the whole share fits at once
        table = memory_table(memory, max(seconds), limit) if memory is not None else ((max(seconds), share),)
    seed = args.seed if args.data_seed is None else args.data_seed
    use_batch(trainer, (share, 1))
    try:
        step = args.train_batch_size * args.world_size
        sampler = StepSampler(
            seconds, step, mode=mode, memory=table, seed=seed, drop_last=args.dataloader_drop_last,
            overhead_s=config.micro_batch_overhead_s,
        )  # fmt: skip
        leave = use_batches(trainer, sampler, planned_shares(trainer, config, mode))
    except AsrConfigError as error:
        use_batch(trainer, before)
        _not_followed(config, str(error.message))
        return lambda: None

    def undo() -> None:
        leave()
        use_batch(trainer, before)

    return undo


def planned_shares(trainer: Any, config: PlanRecord, mode: str) -> list[int] | None:
    """The clips of each process in a step, by the speed of its GPU; None where they are even.

    All processes must call it: they exchange what is planned for their GPUs.
    """
    import torch

    args = trainer.args
    if args.world_size == 1 or not torch.distributed.is_initialized():
        return None
    own = planned_device(config.devices, args.local_process_index)
    gathered = torch.zeros(args.world_size, dtype=torch.int64, device=args.device)
    gathered[args.process_index] = own.samples if own and mode != "packed" and _knows_rule(trainer) else 0
    torch.distributed.all_reduce(gathered)
    shares, planned = gathered.tolist(), [device.samples for device in config.devices]
    if len(set(planned)) < 2:
        return None
    if sorted(shares) == sorted(planned) and sum(shares) == args.train_batch_size * args.world_size:
        return list(shares)
    warnings.warn(
        "the plan's shares of a step are not taken (processes, GPUs, order or loss are not as planned); they are even",
        PlanNotFollowedWarning,
        stacklevel=4,
    )
    return None


def _knows_rule(trainer: Any) -> bool:
    """Whether unequal shares can be weighted, so that their gradient is that of even ones."""
    from ..guard import guard_of

    guard = guard_of(trainer)
    return guard is not None and guard.knows_rule


def _clip_seconds(trainer: Any, config: PlanRecord, durations: array[float]) -> array[float] | None:
    size = getattr(trainer.train_dataset, "__len__", None)
    if size is None:
        _not_followed(config, "the dataset is a plain stream: train on config.stream(dataset)")
        return None
    if (seconds := known_seconds(size(), config, durations)) is not None:
        return seconds
    words = WORDS[config.row_kind]
    if len(durations) == size():
        rows = [row for row, s in enumerate(durations) if math.isnan(s)]
        unreadable = f"{len(rows)} of {size()} {words.nouns} are not known, as of files that cannot be read"
        reason = f"{words.lengths} of {unreadable}: row{'s' * (len(rows) > 1)} {listed(rows)}"
        advice = "train on config.select(dataset), which leaves them out"
    else:
        reason = f"{words.lengths} of {words.count(len(durations))} were measured and the training set has {size()}"
        advice = "plan with the dataset that is trained on, as it is after filtering: create_optimal_config(dataset, …)"
    _not_followed(config, reason, f": {advice}")
    return None


def known_seconds(clips: int, config: PlanRecord | None, durations: array[float]) -> array[float] | None:
    """The durations that are those of so many clips: all that were measured, or those that the plan keeps."""
    limit = math.inf if config is None or config.max_length_s is None else config.max_length_s
    for seconds in (durations, array("d", (s for s in durations if s <= limit))):
        if len(seconds) == clips and not any(math.isnan(s) for s in seconds):
            return seconds
    return None


def _not_followed(config: PlanRecord, reason: str, then: str = "") -> None:
    rows = WORDS[config.row_kind].nouns
    warnings.warn(
        f"the plan's {config.length_handling} steps are not taken ({reason}); {rows} come in random order{then}",
        PlanNotFollowedWarning,
        stacklevel=5,
    )
