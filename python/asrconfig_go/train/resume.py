"""Where a resumed run starts, with which batches, and what of its settings, its model and its data has changed."""

from __future__ import annotations

import enum
import hashlib
import json
import logging
import math
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch.utils.data import IterableDataset

from .._core.output import logger
from ..data.source import open_source
from ..errors import CorruptFileError, InvalidArgumentError, NotFoundError
from ..guard.training_report import Change
from ..plan.plan_record import BATCH_FIELDS
from ..plan.training_arguments import REPORTED
from .checkpoints import checkpoints, incomplete, newest_complete, step_of
from .run_record import ModelRecord, RunRecord, folder_of
from .stream_batches import StreamBatches
from .trainer_reset import use_batch

if TYPE_CHECKING:
    import torch
    from transformers import Trainer, TrainingArguments

# Those of TrainingArguments that the installed transformers has; batch, accumulation and devices are the record's.
_ARGUMENTS = (
    "learning_rate", "lr_scheduler_type", "lr_scheduler_kwargs", "warmup_steps", "warmup_ratio", "num_train_epochs",
    "max_steps", "optim", "optim_args", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon", "max_grad_norm",
    "seed", "data_seed", "fp16", "bf16", "tf32", "label_smoothing_factor", "neftune_noise_alpha",
    "train_sampling_strategy", "group_by_length", "dataloader_drop_last",
)  # fmt: skip
_SCHEDULE = set(_ARGUMENTS[1:7])
# A checkpoint's optimizer brings its own; orders and random numbers continue from the record's.
_OF_THE_CHECKPOINT = {"learning_rate", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon"}
_SAME_STATE = {"adamw_torch", "adamw_torch_fused"}  # what one of them saved, the other takes
_NOT_OF_THE_RESULT = ("_name_or_path", "transformers_version", "torch_dtype", "dtype", "use_cache", "architectures")
_ANEW = "start a new run, in another output_dir or by manager.train(trainer, resume=False)"


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


def start_point(trainer: Trainer, resume: bool | str | os.PathLike[str]) -> StartPoint:
    """The run that ``resume`` asks for; changes nothing.

    Raises ``NotFoundError`` or ``CorruptFileError`` for a checkpoint that cannot be continued from, and
    ``InvalidArgumentError`` where the run cannot be continued with this data or on so many devices.
    """
    output = Path(trainer.args.output_dir)
    if _begins_anew(trainer, resume):
        return StartPoint(None, replace(_record_of(trainer), foreign=[c.name for c in checkpoints(output)]))
    source = _folder_of_run(trainer, resume)
    folder = folder_of(trainer, source)
    previous = folder.read()
    checkpoint = _newest(output, previous) if resume is True else _named_checkpoint(Path(str(resume)), previous)
    if previous:  # nothing is loaded before that is known to fit
        check_model(previous.model, model_record(trainer.model), source)
        check_optimizer(previous.settings, run_settings(trainer), source)
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
    changed = changes(previous.settings, run_settings(trainer), checkpoint is not None) if previous else ()
    return StartPoint(checkpoint, record, previous is not None, begin, epochs, changed)


def _begins_anew(trainer: Trainer, resume: bool | str | os.PathLike[str]) -> bool:
    """Whether nothing is continued: as asked, or since the run in the folder saved nothing and was another one.

    Stopped before its first checkpoint, a run with another batch, data, model or setting has nothing to continue. Other
    devices alone do not make it another one.
    """
    if resume is not True:
        return resume is False
    previous = folder_of(trainer).read()
    if previous is None or any(c.name not in previous.foreign for c in checkpoints(Path(trainer.args.output_dir))):
        return False
    now = _record_of(trainer)
    same_batch = previous.batch[2] != now.batch[2] or previous.effective_batch == now.effective_batch
    same_data = previous.samples == now.samples and previous.model == now.model
    return not (same_batch and same_data) or bool(changes(previous.settings, now.settings, resumed=False))


def _folder_of_run(trainer: Trainer, resume: bool | str | os.PathLike[str]) -> Path:
    return Path(trainer.args.output_dir) if resume is True else Path(str(resume)).resolve().parent


def _newest(output: Path, previous: RunRecord | None) -> Path | None:
    newest = newest_complete(output, previous.foreign if previous else (), previous.processes if previous else None)
    if newest is None:
        # On a first start this is expected.
        level = logging.INFO if previous is None and not checkpoints(output) else logging.WARNING
        start = "training starts from its first step, with the model as it is"
        logger.log(level, "%s holds no complete checkpoint of the run: %s", output, start)
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


def _record_of(trainer: Trainer) -> RunRecord:
    args = trainer.args
    devices = int(args.world_size * max(1, args.n_gpu))
    batch = (args.per_device_train_batch_size, args.gradient_accumulation_steps, devices)
    return RunRecord(
        batch, args.world_size, _samples(trainer), _gpu(args),
        settings=run_settings(trainer), model=model_record(trainer.model),
    )  # fmt: skip


def _continued(trainer: Trainer, previous: RunRecord) -> RunRecord:
    """``previous`` on this machine: its effective batch in batches that ``args`` allow, without other GPUs' limits."""
    now = _record_of(trainer)
    same = previous.gpu == now.gpu
    if not same:
        logger.warning("the run was on %s, this is %s: its limits do not count here", _named(previous), _named(now))
    return replace(
        previous,
        batch=_run_batch(previous, now),
        processes=now.processes,
        samples=now.samples,
        gpu=now.gpu,
        limits=previous.limits if same else {},
        micro_batch=previous.micro_batch if same else None,
    )


def _run_batch(previous: RunRecord, now: RunRecord) -> tuple[int, int, int]:
    """The batch of ``now`` with the effective batch of ``previous``; a change is logged."""
    limit = previous.micro_batch if previous.gpu == now.gpu else None
    batch = kept_batch(previous.effective_batch, now.batch, limit)
    if batch != now.batch:
        products = [" × ".join(map(str, b)) for b in (batch, now.batch)]
        reason = "overriding args, which a new run in another output_dir takes"
        if limit and batch[0] < now.batch[0]:
            reason = "as it ran out of memory with more"
        logger.warning(
            "the run's effective batch of %d is kept, %s: %s instead of %s", previous.effective_batch, reason, *products
        )
    return batch


def use_run_batch(trainer: Trainer, resume: bool | str | os.PathLike[str]) -> None:
    """Let ``trainer`` have the effective batch of the run that ``resume`` names, before a plan's steps are made."""
    anew = _begins_anew(trainer, resume)
    previous = None if anew else folder_of(trainer, _folder_of_run(trainer, resume)).read()
    if previous is None:
        return
    now = _record_of(trainer)
    batch = _run_batch(previous, now)
    use_batch(trainer, batch[:2])
    if batch != now.batch:  # as was logged
        unsupported, overridden = getattr(trainer.args, REPORTED, ((), ()))
        object.__setattr__(trainer.args, REPORTED, (unsupported, [*overridden, *BATCH_FIELDS]))


def kept_batch(effective: int, requested: tuple[int, int, int], limit: int | None = None) -> tuple[int, int, int]:
    """``requested``, (samples, accumulation, devices), changed as little as keeps ``effective`` samples in a step.

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


def _samples(trainer: Trainer) -> int | None:
    return open_source(trainer.train_dataset).length


def _gpu(args: TrainingArguments) -> tuple[str, int] | None:
    if args.device.type != "cuda":
        return None
    import torch

    properties = torch.cuda.get_device_properties(args.device)
    return properties.name, int(properties.total_memory)


def _named(record: RunRecord) -> str:
    return f"{record.gpu[0]} with {record.gpu[1] / 2**30:.1f} GiB" if record.gpu else "a CPU"


def model_record(model: torch.nn.Module) -> ModelRecord:
    """The record of a ``torch.nn.Module``."""
    digest, total, trained = hashlib.blake2b(digest_size=16), 0, 0
    for name, parameter in model.named_parameters():
        shape = tuple(getattr(parameter, "ds_shape", parameter.shape))  # DeepSpeed's, where the weights are elsewhere
        size = math.prod(shape)
        total += size
        trained += size if parameter.requires_grad else 0
        digest.update(f"{name} {shape} {parameter.requires_grad}\n".encode())
    words = getattr(getattr(model, "config", None), "vocab_size", None)
    return ModelRecord(
        class_name=type(model).__name__,
        vocabulary=words if isinstance(words, int) else None,
        parameters=total,
        trainable=trained,
        shapes=digest.hexdigest(),
    )


def run_settings(trainer: Trainer) -> dict[str, Any]:
    """The settings by name, as JSON: those of ``args``, and the model's config as ``config.<name>``."""
    dataset, names = trainer.train_dataset, list(_ARGUMENTS)
    if isinstance(dataset, IterableDataset) and not isinstance(dataset, StreamBatches):
        names.append("dataloader_num_workers")  # on which its order depends
    args = {name: _plain(getattr(trainer.args, name)) for name in names if hasattr(trainer.args, name)}
    config: Any = getattr(trainer.model, "config", None)
    options = config.to_dict() if hasattr(config, "to_dict") else {}
    return {
        **args,
        **{
            f"config.{name}": _plain(value)
            for name, value in sorted(options.items())
            if name not in _NOT_OF_THE_RESULT and not name.startswith("_attn") and not name.endswith("_token_id")
        },
    }


def _plain(value: object) -> Any:
    """The value as it comes back from JSON."""
    value = value.value if isinstance(value, enum.Enum) else value
    return json.loads(json.dumps(value, default=str, sort_keys=True))


def changes(before: dict[str, Any], now: dict[str, Any], resumed: bool) -> tuple[Change, ...]:
    """The settings in both that have another value ``now``; ``resumed``: the training continues from a checkpoint."""
    unused = {"seed"} | (_OF_THE_CHECKPOINT if resumed else set())
    different = [name for name in before if name in now and before[name] != now[name]]
    return tuple(Change(name, before[name], now[name], name not in unused) for name in different)


def changes_schedule(changed: tuple[Change, ...]) -> bool:
    """Whether the schedule of the learning rate changes from here on."""
    return any(change.name in _SCHEDULE for change in changed)


def check_model(before: ModelRecord | None, now: ModelRecord, folder: Path) -> None:
    """Raise ``InvalidArgumentError`` where the weights of the run are not those of this model."""
    if before is not None and (before.class_name, before.shapes) != (now.class_name, now.shapes):
        raise InvalidArgumentError(
            f"the model is another than that of the run in {folder}: {now}; the run's: {before}",
            f"make the model as for that run, or {_ANEW}",
        )


def check_optimizer(before: dict[str, Any], now: dict[str, Any], folder: Path) -> None:
    """Raise ``InvalidArgumentError`` where the optimizer cannot take the state of the run's."""
    was, is_now = before.get("optim"), now.get("optim")
    if isinstance(was, str) and was != is_now and not {was, is_now} <= _SAME_STATE:
        raise InvalidArgumentError(
            f"optim = {is_now!r} cannot continue with the state of the run in {folder}, whose optimizer is {was!r}",
            f"set optim={was!r}, or {_ANEW}",
        )


def check_rows(before: int | None, now: int | None, folder: Path) -> None:
    """Raise ``InvalidArgumentError`` where no position in this data is that of the run."""
    if None not in (before, now) and before != now:
        raise InvalidArgumentError(
            f"train_dataset has {now} rows, that of the run in {folder} was recorded with {before}",
            f"pass the same data, or {_ANEW}, from the weights that you have",
        )
