"""Trains a plan's optimizer steps: each rank's share of a step as one batch, or batches grouped by length.

A share is split into micro-batches by the guard; ``memory_limit`` is what its memory model may fill.
"""

from __future__ import annotations

import math
import warnings
from array import array
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

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
    from torch.utils.data import Dataset, Sampler
    from transformers import Trainer, TrainingArguments

    from ..guard.guard import Guard
    from ..predict.memory_model import MemoryModel

_GRADIENT_BYTES = 4
_SHARED = ("per_device_train_batch_size", "gradient_accumulation_steps", "micro_batching", "length_handling")
"""Settings of a plan by which all processes draw clips; plans from different free memory may differ in them."""
_STRATEGIES_BY_LENGTH = ("group_by_length", "batch_rebalance")


class PlanNotFollowedWarning(UserWarning):
    """A Trainer cannot carry out a part of the plan; the message names the reason and what is done instead."""


def memory_limit(
    memory: MemoryModel, trainer: Trainer, config: PlanRecord | None, margin: float, longest_s: float | None = None
) -> int | None:
    """The bytes that PyTorch's allocator may reserve for micro-batches; None where neither GPU nor plan has a limit.

    ``margin`` is the part of the available memory that may be used; ``longest_s`` are the seconds of the longest clip,
    where the Trainer gets each step of the plan as one collated batch.
    """
    limit = _allocator_limit(memory, trainer, config, margin)
    if limit is None or config is None or longest_s is None:
        return limit
    return memory.beside_inputs(limit, config.largest_share(trainer.args), longest_s)


def _allocator_limit(memory: MemoryModel, trainer: Trainer, config: PlanRecord | None, margin: float) -> int | None:
    """The bytes that PyTorch's allocator may reserve: ``margin`` of the available memory, less what is outside of it.

    Outside are the CUDA context and DDP's buckets, a second copy of the gradients. Where a plan has GPUs of different
    sizes, the limit is that of the GPU of this rank. Without a GPU it is the plan's budget of host RAM, None without a
    plan.
    """
    available, context = memory.target.available_bytes, memory.target.context_bytes
    if available is None or context is None:
        return config.budget_bytes - HOST_BYTES if config is not None and config.budget_bytes > HOST_BYTES else None
    limit = int(available * margin)
    devices = () if config is None else config.devices
    if len({device.budget_bytes for device in devices}) > 1:  # ``memory`` is of the smallest GPU
        own = planned_device(devices, trainer.args.local_process_index)
        limit = limit if own is None else own.budget_bytes
    limit -= int(context)
    if trainer.args.world_size > 1:
        limit -= _GRADIENT_BYTES * sum(p.numel() for p in trainer.model.parameters() if p.requires_grad)
    return max(1, limit)


def use_planned_batches(guard: Guard, config: PlanRecord, durations: array[float]) -> Callable[[], None]:
    """Let the Trainer of ``guard`` train the plan's steps: each rank gets its share of a step as one batch.

    The Trainer's own batches stay, with a warning that says why, where the durations of the training set are unknown,
    where the Trainer cannot train chosen clips or chooses its own, and where the guard does not know what the loss
    divides by. ``durations`` are the seconds of the training set's clips, in its order.

    Returns the function that undoes it.
    """
    from ..predict.step_sampler import StepSampler
    from .stream_batches import StreamBatches
    from .stream_training import use_batches
    from .trainer_reset import use_batch

    trainer, args = guard.trainer, guard.trainer.args
    before = (args.per_device_train_batch_size, args.gradient_accumulation_steps)
    share = before[0] * before[1]
    # Micro-batches and unequal shares of the ranks can be weighted only where it is known what the loss divides by.
    if isinstance(trainer.train_dataset, StreamBatches):
        use_batch(trainer, (share, 1) if guard.knows_rule else before)
        return lambda: use_batch(trainer, before)
    mode = "random" if config.length_handling == "grouped" else config.length_handling
    seed = args.seed if args.data_seed is None else args.data_seed
    with ExitStack() as undo:
        try:
            if not guard.knows_rule:
                raise InvalidArgumentError("what the loss divides by is not known: guard.notes says why")
            for name in ("get_train_dataloader", "_get_train_sampler"):
                if not getattr(type(trainer), name).__module__.startswith("transformers."):
                    raise InvalidArgumentError(f"{type(trainer).__name__}.{name} chooses its own")
            seconds = _clip_seconds(trainer, config, durations)
            undo.callback(use_batch, trainer, before)
            use_batch(trainer, (share, 1))
            sampler = StepSampler(
                seconds, args.train_batch_size * args.world_size, mode=mode, seed=seed,
                drop_last=args.dataloader_drop_last, overhead_s=config.micro_batch_overhead_s,
                host_s=config.micro_batch_host_s,
            )  # fmt: skip
            undo.callback(use_batches(trainer, sampler, _planned_shares(trainer, config)))
            return undo.pop_all().close
        except AsrConfigError as error:
            rows = WORDS[config.row_kind].nouns
            advice = f": {error.hint}" if error.hint else ""
            warnings.warn(
                f"the plan's {config.length_handling} steps are not taken ({error.message}); {rows} come in the "
                f"Trainer's order{advice}",
                PlanNotFollowedWarning,
                stacklevel=4,
            )
    return lambda: None


def check_same_plan(args: TrainingArguments, config: PlanRecord | None) -> None:
    """Check that all processes of a training have planned the same steps, as on cards with the same free memory.

    It is a collective operation. Raises ``InvalidArgumentError`` where a setting differs that all must share.
    """
    import torch

    if args.world_size == 1 or not torch.distributed.is_initialized():
        return
    plans: list[dict[str, object]] = [{}] * args.world_size
    torch.distributed.all_gather_object(plans, {name: getattr(config, name, None) for name in _SHARED})
    for name in _SHARED:
        values = [plan[name] for plan in plans]
        if values.count(values[0]) < len(values):
            raise InvalidArgumentError(
                f"the processes planned differently: {name} is {listed(values)}, in the order of ranks",
                'plan once, save it by manager.save_config(config, "plan.json"), and call '
                'config = manager.load_config("plan.json") in each process',
            )


def _planned_shares(trainer: Trainer, config: PlanRecord) -> list[int] | None:
    """The clips of each rank in a step, by the speed of its GPU; None where all have as many.

    It is a collective operation: the ranks exchange the planned shares of their GPUs.
    """
    import torch

    args = trainer.args
    if args.world_size == 1 or not torch.distributed.is_initialized():
        return None
    own = planned_device(config.devices, args.local_process_index)
    gathered = torch.zeros(args.world_size, dtype=torch.int64, device=args.device)
    gathered[args.process_index] = own.samples if own else 0
    torch.distributed.all_reduce(gathered)
    shares, planned = gathered.tolist(), [device.samples for device in config.devices]
    if len(set(planned)) < 2:
        return None
    if sorted(shares) == sorted(planned) and sum(shares) == args.train_batch_size * args.world_size:
        return list(shares)
    warnings.warn(
        "the plan's shares of a step are not taken (processes or GPUs are not as planned); they are even",
        PlanNotFollowedWarning,
        stacklevel=4,
    )
    return None


def _clip_seconds(trainer: Trainer, config: PlanRecord, durations: array[float]) -> array[float]:
    """The seconds of every clip of the training set. Raises ``InvalidArgumentError`` where they are unknown."""
    size = open_source(trainer.train_dataset).length
    if size is None:
        raise InvalidArgumentError("the dataset is a plain stream: train on config.stream(dataset)")
    if (seconds := durations_of_set(size, config, durations)) is not None:
        return seconds
    words = WORDS[config.row_kind]
    if len(durations) == size:
        rows = clips_by_use(durations)[2]
        unreadable = f"{len(rows)} of {size} {words.nouns} are not known, as of files that cannot be read"
        raise InvalidArgumentError(
            f"{words.lengths} of {unreadable}: row{'s' * (len(rows) > 1)} {listed(rows)}",
            "train on config.select(dataset), which leaves them out",
        )
    measured = f"{words.lengths} of {words.count(len(durations))} were measured and the training set has {size}"
    raise InvalidArgumentError(
        measured if durations else f"{words.lengths} of the training set, in its order, were not measured",
        "plan with the dataset that is trained on, as it is after filtering: create_optimal_config(dataset, …)",
    )


def is_in_order(dataset: object, measured: object) -> bool:
    """Whether rows of ``dataset`` come in the order of ``measured``, as far as ``shuffle`` and ``sort`` leave a trace.

    Rows may have been left out.
    """
    rows, before = getattr(dataset, "_indices", None), getattr(measured, "_indices", None)
    if rows is None or dataset is measured:
        return True
    import numpy as np

    order = rows.column(0).to_numpy()
    if before is None:
        return bool((order[1:] > order[:-1]).all())
    earlier = before.column(0).to_numpy()
    return np.array_equal(earlier[np.isin(earlier, order)], order)


def durations_of_set(clips: int, config: PlanRecord | None, durations: array[float]) -> array[float] | None:
    """The durations of a training set of ``clips`` clips: all that were measured, or those that the plan keeps.

    None where neither are as many, and where a duration is unknown.
    """
    for seconds in (durations, usable_seconds(durations, None if config is None else config.max_length_s)):
        if len(seconds) == clips and not any(math.isnan(s) for s in seconds):
            return seconds
    return None


def group_by_durations(trainer: Trainer, config: PlanRecord | None, durations: array[float]) -> Callable[[], None]:
    """Let ``trainer`` group clips by the measured ``durations``, where its dataset has no column of lengths.

    A Trainer alone would decode every clip to find its length, or fail, as it does where the dataset has such a column
    and a transform. The groups are those of a column that ``add_durations`` makes. Evaluation keeps the dataset's order
    where there is no column. Nothing is read before the Trainer makes its samplers; they raise ``InvalidArgumentError``
    where the lengths are unknown. By the plan, ``config``, clips may have been left out.

    Returns the function that undoes it.
    """
    if attached(trainer, "lengths"):
        return lambda: None
    make_train_sampler, make_eval_sampler = trainer._get_train_sampler, trainer._get_eval_sampler

    def get_train_sampler(*args: object) -> Sampler | None:
        dataset = args[0] if args else trainer.train_dataset
        rows_to_group = open_source(dataset).length if _groups_by_length(trainer.args) else None
        if rows_to_group is None:
            return make_train_sampler(*args)
        # The Trainer may have removed the column from what it loads, as the model does not take it.
        lengths = _stored_lengths(trainer, trainer.train_dataset)
        if not lengths:  # the measured ones, as ``add_durations`` writes them
            zeroed = array("d", (0.0 if math.isnan(s) else s for s in durations))
            seconds = durations_of_set(rows_to_group, config, zeroed)
            lengths = None if seconds is None else lengths_of(seconds)
        if lengths is not None:
            return _sampler_by_lengths(trainer, lengths, lambda column: make_train_sampler(*(column for _ in args)))
        try:
            return make_train_sampler(*args)
        except ValueError as error:
            column, rows = trainer.args.length_column_name, len(durations)
            counts = f"were measured of {rows} rows, not of these {rows_to_group}"
            raise InvalidArgumentError(
                f"rows cannot be grouped by length: the training set has no column {column!r}, and durations "
                + (counts if rows else "of all rows were not measured"),
                f"dataset = asrconfig_go.add_durations(dataset, {column!r}), or plan from the whole training set",
            ) from error

    def get_eval_sampler(dataset: Dataset) -> Sampler | None:
        source = open_source(dataset)
        if not _groups_by_length(trainer.args) or source.length is None:
            return make_eval_sampler(dataset)
        if (lengths := _stored_lengths(trainer, dataset)) is not None:
            return _sampler_by_lengths(trainer, lengths, make_eval_sampler)
        names = getattr(trainer.processing_class, "model_input_names", None) or ("input_ids",)
        if source.kind == "dataset" and names[0] in source.columns:  # the Trainer takes the lengths of that column
            return make_eval_sampler(dataset)
        name, value = _grouping_argument(trainer.args)
        undo = override(trainer.args, name, False if value is True else "random")
        try:
            return make_eval_sampler(dataset)
        finally:
            undo()

    return session_of(trainer).add(
        "lengths", True, {"_get_train_sampler": get_train_sampler, "_get_eval_sampler": get_eval_sampler}
    )


def _grouping_argument(args: TrainingArguments) -> tuple[str, str | bool]:
    """The argument that makes a Trainer group by length, and its value; transformers 5 has renamed it."""
    name = "train_sampling_strategy" if hasattr(args, "train_sampling_strategy") else "group_by_length"
    return name, getattr(args, name)


def _groups_by_length(args: TrainingArguments) -> bool:
    value = _grouping_argument(args)[1]
    return value is True or value in _STRATEGIES_BY_LENGTH


def _stored_lengths(trainer: Trainer, dataset: Dataset) -> list[int] | None:
    """The dataset's column of lengths, read without its transform, which would decode the audio; None without one."""
    name = trainer.args.length_column_name
    source = open_source(dataset)
    if source.kind != "dataset" or name not in source.columns:
        return None
    return list(source.stored([name])[name][:])


def _sampler_by_lengths(trainer: Trainer, lengths: list[int], make_sampler: Callable[[Dataset], Sampler]) -> Sampler:
    """The Trainer's own sampler, made with a dataset of the lengths alone."""
    import datasets

    column = datasets.Dataset.from_dict({trainer.args.length_column_name: lengths})
    undo = override(trainer, "train_dataset", column)  # older versions take this instead of their argument
    try:
        sampler = make_sampler(column)
    finally:
        undo()
    if hasattr(sampler, "lengths"):
        sampler.lengths = lengths  # the sampler reads a column row by row, which is slow
    return sampler


def planned_device(devices: Sequence[PlannedDevice], number: int) -> PlannedDevice | None:
    """What is planned for the GPU with CUDA's index ``number``; None for a GPU that is not in the plan.

    GPUs are matched by UUID, as CUDA and the driver may number them differently. Where the plan was made for other GPUs
    of the same name, the one with the smallest budget is returned.
    """
    import torch

    if number >= torch.cuda.device_count():
        return None
    card = torch.cuda.get_device_properties(number)
    same_gpu = [device for device in devices if device.uuid and device.uuid == uuid_of(card)]
    same_name = [d for d in devices if d.name == card.name and d.budget_bytes <= card.total_memory]
    return min(same_gpu or same_name, key=lambda device: device.budget_bytes, default=None)
