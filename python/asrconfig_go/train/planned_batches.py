"""Applies a plan's steps to a Trainer: steps of chosen clips, split by memory, grouped by length."""

from __future__ import annotations

import logging
import math
import warnings
from array import array
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from .._core.declared import WORDS
from .._core.output import listed
from .._core.training_session import attached, override, session_of
from ..data.scan_result import clips_by_use, lengths_of, usable_seconds
from ..data.source import open_source
from ..errors import AsrConfigError, InvalidArgumentError
from ..plan.plan_record import PlanRecord
from ..plan.plan_records import PlannedDevice
from ..plan.traced_answers import HOST_BYTES
from ..predict.hardware import uuid_of

if TYPE_CHECKING:
    import torch
    from transformers import Trainer, TrainingArguments

    from ..predict.memory_model import MemoryModel

logger: logging.Logger = logging.getLogger(__name__)

_GRADIENT_BYTES = 4
_BY_LENGTH = ("group_by_length", "batch_rebalance")
_PACKED = ("packed", "random_then_packed")  # modes whose steps are shared evenly


class PlanNotFollowedWarning(UserWarning):
    """A part of the plan cannot be carried out by this Trainer; what is done instead."""


def memory_limit(memory: MemoryModel, trainer: Trainer, config: PlanRecord | None, margin: float) -> int | None:
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


def use_planned_batches(trainer: Trainer, config: PlanRecord, durations: array[float]) -> Callable[[], None]:
    """Let ``trainer`` take the plan's steps: a process's whole share at once.

    ``durations`` are the seconds of the clips of the training set, in its order. Without them, where the Trainer cannot
    take chosen clips, or where the guard does not know what the loss divides by, steps stay in random order with the
    Trainer's own batches, and a warning says why. Returns the function that undoes it.
    """
    from ..predict.step_sampler import StepSampler
    from .stream_batches import StreamBatches
    from .stream_training import use_batches
    from .trainer_reset import use_batch

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
    seed = args.seed if args.data_seed is None else args.data_seed
    use_batch(trainer, (share, 1))
    try:
        step = args.train_batch_size * args.world_size
        sampler = StepSampler(
            seconds, step, mode=mode, seed=seed, drop_last=args.dataloader_drop_last,
            overhead_s=config.micro_batch_overhead_s, host_s=config.micro_batch_host_s,
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


def planned_shares(trainer: Trainer, config: PlanRecord, mode: str) -> list[int] | None:
    """The clips of each process in a step, by the speed of its GPU; None where they are even.

    All processes must call it: they exchange what is planned for their GPUs.
    """
    import torch

    args = trainer.args
    if args.world_size == 1 or not torch.distributed.is_initialized():
        return None
    own = planned_device(config.devices, args.local_process_index)
    gathered = torch.zeros(args.world_size, dtype=torch.int64, device=args.device)
    gathered[args.process_index] = own.samples if own and mode not in _PACKED and _knows_rule(trainer) else 0
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


def _knows_rule(trainer: Trainer) -> bool:
    """Whether unequal shares can be weighted, so that their gradient is that of even ones."""
    from ..guard.guard import guard_of

    guard = guard_of(trainer)
    return guard is not None and guard.knows_rule


def _clip_seconds(trainer: Trainer, config: PlanRecord, durations: array[float]) -> array[float] | None:
    size = open_source(trainer.train_dataset).length
    if size is None:
        _not_followed(config, "the dataset is a plain stream: train on config.stream(dataset)")
        return None
    if (seconds := known_seconds(size, config, durations)) is not None:
        return seconds
    words = WORDS[config.row_kind]
    if len(durations) == size:
        rows = clips_by_use(durations)[2]
        unreadable = f"{len(rows)} of {size} {words.nouns} are not known, as of files that cannot be read"
        reason = f"{words.lengths} of {unreadable}: row{'s' * (len(rows) > 1)} {listed(rows)}"
        advice = "train on config.select(dataset), which leaves them out"
    else:
        reason = f"{words.lengths} of {words.count(len(durations))} were measured and the training set has {size}"
        advice = "plan with the dataset that is trained on, as it is after filtering: create_optimal_config(dataset, …)"
    _not_followed(config, reason, f": {advice}")
    return None


def known_seconds(clips: int, config: PlanRecord | None, durations: array[float]) -> array[float] | None:
    """The durations that are those of so many clips: all that were measured, or those that the plan keeps."""
    for seconds in (durations, usable_seconds(durations, None if config is None else config.max_length_s)):
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


def group_by_durations(trainer: Trainer, config: PlanRecord | None, durations: array[float]) -> Callable[[], None]:
    """Let ``trainer`` group clips by the ``durations`` that were measured, where its dataset has no column of lengths.

    By itself it would decode every clip to find their lengths, or fail, as it does with a column of a dataset with a
    transform. The groups are those of a column that ``add_durations`` makes. Evaluation keeps the dataset's order
    without one. Nothing is looked at before the Trainer makes its samplers; where the lengths are not known then,
    ``InvalidArgumentError`` is raised. Returns the function that undoes it.
    """
    if attached(trainer, "lengths"):
        return lambda: None
    train, evaluate = trainer._get_train_sampler, trainer._get_eval_sampler

    def get_train_sampler(*args: object) -> Any:
        dataset = args[0] if args else trainer.train_dataset
        rows_to_group = open_source(dataset).length if _groups(trainer.args) else None
        if rows_to_group is None:
            return train(*args)
        # The Trainer may have removed the column from what it loads, as the model does not take it.
        lengths = _column(trainer, trainer.train_dataset) or _measured(rows_to_group, config, durations)
        if lengths is not None:
            return _by_lengths(trainer, lengths, lambda column: train(*(column for _ in args)))
        try:
            return train(*args)
        except ValueError as error:
            column, rows = trainer.args.length_column_name, len(durations)
            counts = f"were measured of {rows} rows, not of these {rows_to_group}"
            raise InvalidArgumentError(
                f"rows cannot be grouped by length: the training set has no column {column!r}, and durations "
                + (counts if rows else "of all rows were not measured"),
                f"dataset = asrconfig_go.add_durations(dataset, {column!r}), or plan from the whole training set",
            ) from error

    def get_eval_sampler(dataset: torch.utils.data.Dataset) -> Any:
        if not _groups(trainer.args) or open_source(dataset).length is None:
            return evaluate(dataset)
        if (lengths := _column(trainer, dataset)) is not None:
            return _by_lengths(trainer, lengths, evaluate)
        names = getattr(getattr(trainer, "processing_class", None), "model_input_names", None) or ("input_ids",)
        source = open_source(dataset)
        if source.kind == "dataset" and names[0] in source.columns:  # the Trainer takes the lengths of that column
            return evaluate(dataset)
        name, value = _setting(trainer.args)
        undo = override(trainer.args, name, False if value is True else "random")
        try:
            return evaluate(dataset)
        finally:
            undo()

    return session_of(trainer).add(
        "lengths", True, {"_get_train_sampler": get_train_sampler, "_get_eval_sampler": get_eval_sampler}
    )


def _setting(args: TrainingArguments) -> tuple[str, Any]:
    """The argument that makes a Trainer group by length, and its value; its name depends on transformers' version."""
    for name in ("train_sampling_strategy", "group_by_length"):
        if hasattr(args, name):
            return name, getattr(args, name)
    return "", None


def _groups(args: TrainingArguments) -> bool:
    value = _setting(args)[1]
    return value is True or value in _BY_LENGTH


def _column(trainer: Trainer, dataset: torch.utils.data.Dataset) -> list[Any] | None:
    """The dataset's column of lengths, past a transform that would make whole rows; None without one."""
    name = trainer.args.length_column_name
    source = open_source(dataset)
    if source.kind != "dataset" or name not in source.columns:
        return None
    return list(source.stored([name])[name][:])


def _measured(clips: int, config: PlanRecord | None, durations: array[float]) -> list[int] | None:
    """The measured lengths as ``add_durations`` writes them; None unless they are of this training set."""
    readable = array("d", (0.0 if math.isnan(s) else s for s in durations))
    seconds = known_seconds(clips, config, readable)
    return None if seconds is None else lengths_of(seconds)


def _by_lengths(trainer: Trainer, lengths: list[Any], make: Callable[[Any], Any]) -> Any:
    """The Trainer's own sampler, made with a dataset of the lengths alone."""
    from datasets import Dataset

    column = Dataset.from_dict({trainer.args.length_column_name: lengths})
    undo = override(trainer, "train_dataset", column)  # which older versions take instead of what they are passed
    try:
        sampler = make(column)
    finally:
        undo()
    if hasattr(sampler, "lengths"):
        sampler.lengths = lengths  # a column is read row by row, which takes long
    return sampler


def planned_device(devices: Sequence[PlannedDevice], number: int) -> PlannedDevice | None:
    """The planned share of the GPU with CUDA's index ``number``; None for a GPU that is not in the plan.

    GPUs match by UUID, as CUDA and the driver may order unlike GPUs differently. In a plan for other GPUs of the same
    kind, the one with the smallest budget is returned.
    """
    import torch

    if number >= torch.cuda.device_count():
        return None
    card = torch.cuda.get_device_properties(number)
    same = [device for device in devices if device.uuid and device.uuid == uuid_of(card)]
    like = [d for d in devices if d.name == card.name and d.budget_bytes <= card.total_memory]
    return min(same or like, key=lambda device: device.budget_bytes, default=None)
