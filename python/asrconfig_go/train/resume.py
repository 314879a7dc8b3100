"""Where a resumed run starts, with which batches and with which states of its callbacks."""

from __future__ import annotations

import copy
import json
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import Trainer
from transformers.trainer_callback import ExportableState

from .._core.output import listed
from ..data.source import open_source
from ..errors import CorruptFileError, InvalidArgumentError, NotFoundError
from ..guard.training_report import Change
from .checkpoints import checkpoints, incomplete, newest_complete, step_of
from .run_record import (
    RunRecord,
    changes,
    check_model,
    check_optimizer,
    check_rows,
    folder_of,
    model_record,
    run_settings,
)

if TYPE_CHECKING:
    from transformers import TrainingArguments

logger: logging.Logger = logging.getLogger("asrconfig_go")
FILE = "asrconfig_callbacks.pt"
_DEPTH = 4  # of lists, dictionaries and objects that are looked into


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
    if resume is False:
        return StartPoint(None, replace(_record_of(trainer), foreign=[c.name for c in checkpoints(output)]))
    source = output if resume is True else Path(resume).resolve().parent
    folder = folder_of(trainer, source)
    previous = folder.read()
    checkpoint = _newest(output, previous) if resume is True else _named_checkpoint(Path(resume), previous)
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


class CallbackStates:
    """Of the callbacks of one Trainer. There are three kinds that a restart concerns:

    - those with ``ExportableState``, such as early stopping, which the Trainer saves: a copy is kept by checkpoint;
    - those with ``state_dict`` and ``load_state_dict``, such as averages of weights: a file in the checkpoint;
    - those that hold tensors and have neither: nothing can put them back, see ``lost``.
    """

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        self._exported: dict[Path | None, list[tuple[Any, Any]]] = {}
        self._initial: dict[str, Any] = {}

    def keep(self, checkpoint: Path | None) -> None:
        """Keep what there is at a checkpoint, or where this process begins (None). Raises ``OSError``."""
        exporting = [c for c in self._callbacks() if isinstance(c, ExportableState)]
        self._exported[checkpoint] = [(c, copy.deepcopy(c.state()["attributes"])) for c in exporting]
        if checkpoint is None:
            self._initial = copy.deepcopy(self._dicts())
        elif self._trainer.args.should_save and (states := self._dicts()):
            torch.save(states, checkpoint / FILE)

    def restore(self, checkpoint: Path | None) -> None:
        """Put back what ``keep`` kept in this process."""
        for callback, attributes in self._exported.get(checkpoint, []):
            _set(callback, attributes)
        self._load(self._initial if checkpoint is None else _file(checkpoint))

    def resume(self, checkpoint: Path) -> None:
        """Put back what another process saved: by itself the Trainer restores exported states on request only."""
        state = json.loads((checkpoint / "trainer_state.json").read_text(encoding="utf-8"))
        by_name: dict[str, list[Any]] = {}
        for callback in self._callbacks():
            if isinstance(callback, ExportableState):
                by_name.setdefault(type(callback).__name__, []).append(callback)
        for name, callbacks in by_name.items():
            saved = state.get("stateful_callbacks", {}).get(name, [])
            saved = (saved if isinstance(saved, list) else [saved])[-len(callbacks) :]  # each save appends to a list
            for callback, values in zip(callbacks, saved, strict=False):
                _set(callback, values.get("attributes", {}))
        self._load(_file(checkpoint))

    def lost(self) -> list[str]:
        """In words, the callbacks whose tensors no checkpoint holds, and where they hold them."""
        own = {id(t) for t in (*self._trainer.model.parameters(), *self._trainer.model.buffers())}
        descriptions = []
        for callback in self._callbacks():
            foreign = type(callback).__module__.split(".")[0] not in ("transformers", "asrconfig_go")
            if foreign and not isinstance(callback, ExportableState) and not _saves(callback):
                names = [n for n, value in vars(callback).items() if any(id(t) not in own for t in _tensors_in(value))]
                if names:
                    descriptions.append(f"{type(callback).__name__} ({listed(names)})")
        return descriptions

    def _callbacks(self) -> list[Any]:
        return list(self._trainer.callback_handler.callbacks)

    def _dicts(self) -> dict[str, Any]:
        return {name: callback.state_dict() for name, callback in self._saving().items()}

    def _saving(self) -> dict[str, Any]:
        """The callbacks with ``state_dict``, by class and number, as a new process will have them."""
        callbacks: dict[str, Any] = {}
        for callback in self._callbacks():
            if _saves(callback) and not isinstance(callback, ExportableState):
                kind = type(callback).__qualname__
                callbacks[f"{kind} {sum(name.startswith(f'{kind} ') for name in callbacks)}"] = callback
        return callbacks

    def _load(self, states: dict[str, Any]) -> None:
        for name, callback in self._saving().items():
            if name in states:
                callback.load_state_dict(copy.deepcopy(states[name]))


def _set(callback: Any, attributes: dict[str, Any]) -> None:
    for name, value in copy.deepcopy(attributes).items():
        setattr(callback, name, value)


def _saves(callback: Any) -> bool:
    return all(callable(getattr(callback, name, None)) for name in ("state_dict", "load_state_dict"))


def _file(checkpoint: Path) -> dict[str, Any]:
    path = checkpoint / FILE
    states: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True) if path.is_file() else {}
    return states


def _tensors_in(value: Any, depth: int = _DEPTH) -> Iterator[Any]:
    """The tensors of a value, its items and its attributes, but not a Trainer's, an optimizer's or a dataset's."""
    if isinstance(value, torch.Tensor):
        yield value
        return
    if isinstance(value, torch.nn.Module):
        yield from (*value.parameters(), *value.buffers())
        return
    if not depth or isinstance(value, str | bytes | int | float | type(None) | type):
        return
    if isinstance(value, dict):
        items = list(value.values())
    elif isinstance(value, list | tuple | set):
        items = list(value)
    else:
        items = [] if _is_library_object(value) else list(getattr(value, "__dict__", {}).values())
    for item in items:
        yield from _tensors_in(item, depth - 1)


def _is_library_object(value: Any) -> bool:
    kinds = (Trainer, torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler, torch.utils.data.Dataset)
    foreign = type(value).__module__.split(".")[0] in ("transformers", "accelerate", "datasets", "tokenizers")
    return foreign or callable(value) or isinstance(value, (*kinds, torch.utils.data.DataLoader))
