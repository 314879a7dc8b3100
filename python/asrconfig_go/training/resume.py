"""Where a resumed run starts, and with which batches: the effective batch size stays the run's on any hardware."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from .._base.errors import CorruptFileError, InvalidArgumentError, NotFoundError
from ..guard.training_report import Change
from .checkpoints import checkpoints, incomplete, newest_complete, step_of
from .run_record import RunRecord, folder_of
from .run_settings import changes, check_model, check_optimizer, check_rows, model_record, settings_of

logger: logging.Logger = logging.getLogger("asrconfig_go")


@dataclass
class StartPoint:
    """What a call starts with: ``record`` is that of the run that it continues, or a new one.

    ``checkpoint`` is None where the run starts from its first step; ``begin`` and ``epochs`` are random numbers, see
    ``RunFolder.read_states``; ``has_record`` is whether the run had one; ``changes`` are the settings that changed.
    """

    checkpoint: Path | None
    record: RunRecord
    has_record: bool = False
    begin: dict[str, Any] | None = None
    epochs: dict[int, dict[str, Any]] = field(default_factory=dict)
    changes: tuple[Change, ...] = ()


def start_point(trainer: Any, resume: bool | str | os.PathLike[str]) -> StartPoint:
    """The run that ``resume`` asks for; changes nothing.

    Raises ``NotFoundError`` or ``CorruptFileError`` for a checkpoint that cannot be continued from, and
    ``InvalidArgumentError`` where the run cannot be continued with this data or on so many devices.
    """
    output = Path(trainer.args.output_dir)
    if resume is False:
        return StartPoint(None, replace(_record_of(trainer), foreign=[c.name for c in checkpoints(output)]))
    source = output if resume is True else Path(resume).resolve().parent
    folder = folder_of(trainer, source)
    previous = folder.read()
    checkpoint = _newest(output, previous) if resume is True else _named_checkpoint(Path(resume), previous)
    if previous:  # nothing is loaded before that is known to fit
        check_model(previous.model, model_record(trainer.model), source)
        check_optimizer(previous.settings, settings_of(trainer), source)
        check_rows(previous.samples, _samples(trainer), source)
    if checkpoint and trainer.args.ignore_data_skip:
        logger.warning(
            "ignore_data_skip=True: the epoch that %s is in begins again, with clips seen before", checkpoint
        )
    begin, epochs = folder.read_states() if previous else (None, {})
    done = step_of(checkpoint) if checkpoint else 0
    epochs = {step: state for step, state in epochs.items() if checkpoint and step <= done}
    elsewhere = source.resolve() != output.resolve()
    later = [c.name for c in checkpoints(output) if step_of(c) > done or not checkpoint or elsewhere]
    record = _continued(trainer, previous) if previous else _record_of(trainer)
    # What is there of other runs, or behind the checkpoint, does not belong to the run until it is saved again.
    record.foreign = sorted({*record.foreign, *later})
    changed = changes(previous.settings, settings_of(trainer), checkpoint is not None) if previous else ()
    return StartPoint(checkpoint, record, previous is not None, begin, epochs, changed)


def _newest(output: Path, previous: RunRecord | None) -> Path | None:
    newest = newest_complete(output, previous.foreign if previous else (), previous.processes if previous else None)
    if newest is None:
        # On a first start this is expected.
        level = logging.INFO if previous is None and not checkpoints(output) else logging.WARNING
        logger.log(level, "%s holds no complete checkpoint of the run: training starts from its first step", output)
    elif previous is None:
        logger.warning("%s was saved without a record of its run: the order in its epoch may be another", newest)
    return newest


def _named_checkpoint(checkpoint: Path, previous: RunRecord | None) -> Path:
    if not checkpoint.is_dir():
        raise NotFoundError(f"there is no checkpoint {checkpoint}", "resume=True takes the newest complete one")
    if reason := incomplete(checkpoint, previous.processes if previous else None):
        hint = "resume=True takes the newest complete one"
        raise CorruptFileError(f"{checkpoint} is not complete or damaged: {reason}", hint)
    return checkpoint


def _record_of(trainer: Any) -> RunRecord:
    args = trainer.args
    devices = int(args.world_size * max(1, args.n_gpu))
    batch = (args.per_device_train_batch_size, args.gradient_accumulation_steps, devices)
    return RunRecord(
        batch, args.world_size, _samples(trainer), _gpu(args),
        settings=settings_of(trainer), model=model_record(trainer.model),
    )  # fmt: skip


def _continued(trainer: Any, previous: RunRecord) -> RunRecord:
    """``previous`` on this machine: its effective batch in batches that ``args`` allow, without other GPUs' limits."""
    now = _record_of(trainer)
    same = previous.gpu == now.gpu
    if not same:
        logger.warning("the run was on %s, this is %s: its limits do not count here", _named(previous), _named(now))
    limit = previous.micro_batch if same else None
    batch = kept_batch(previous.effective_batch, now.batch, limit)
    if batch != now.batch:
        products = [" × ".join(map(str, b)) for b in (batch, now.batch)]
        reason = "as it ran out of memory with more" if batch[0] < now.batch[0] and limit else "overriding args"
        logger.warning(
            "the run's effective batch of %d is kept, %s: %s instead of %s", previous.effective_batch, reason, *products
        )
    return replace(
        previous,
        batch=batch,
        processes=now.processes,
        samples=now.samples,
        gpu=now.gpu,
        limits=previous.limits if same else {},
        micro_batch=limit,
    )


def kept_batch(effective: int, requested: tuple[int, int, int], limit: int | None = None) -> tuple[int, int, int]:
    """``asked``, (samples, accumulation, devices), changed as little as keeps ``effective`` samples in a step.

    A device takes the largest divisor of its share that is at most the samples asked for and ``limit``.
    """
    size, accumulation, devices = requested
    if effective % devices:
        raise InvalidArgumentError(
            f"the run's effective batch of {effective} cannot be shared by {devices} devices",
            f"use a number of devices that divides {effective}",
        )
    if size * accumulation * devices == effective and size <= (limit or size):
        return requested
    share = effective // devices
    micro = next(n for n in range(min(size, share, limit or size), 0, -1) if share % n == 0)
    return micro, share // micro, devices


def _samples(trainer: Any) -> int | None:
    data = trainer.train_dataset
    return len(data) if hasattr(data, "__len__") else None


def _gpu(args: Any) -> tuple[str, int] | None:
    if args.device.type != "cuda":
        return None
    import torch

    properties = torch.cuda.get_device_properties(args.device)
    return properties.name, int(properties.total_memory)


def _named(record: RunRecord) -> str:
    return f"{record.gpu[0]} with {record.gpu[1] / 2**30:.1f} GiB" if record.gpu else "a CPU"
