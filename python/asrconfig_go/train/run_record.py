"""The record of a run next to its checkpoints: batch, limits, random numbers, arguments, model.

It is a folder, ``.asrconfig``, in the Trainer's ``output_dir``. Its files are there whole or not at all, whenever the
process is killed:

- ``run.json``: the ``RunRecord``, written by the processes that save checkpoints;
- ``begin.json``, ``epoch-<global step>.json``: the CPU's random number generators before the first step and at the
  begin of each epoch, with ``-rank<n>`` of any process but the first. Orders of samples are drawn from them.
"""

from __future__ import annotations

import enum
import hashlib
import json
import logging
import math
import os
import random
import re
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._core.files import read_object, write_whole
from .._core.records import from_file
from ..errors import CorruptFileError, InvalidArgumentError, VersionMismatchError
from ..guard.training_report import BadBatch, Change, GuardEvent, Restart

if TYPE_CHECKING:
    import torch
    from transformers import Trainer

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
logger: logging.Logger = logging.getLogger("asrconfig_go")
_FOLDER = ".asrconfig"
_SCHEMA = 5
_BEGIN = "begin"
_EPOCH = re.compile(r"epoch-(\d{1,18})(-rank\d+)?")
_HINT = "remove that folder to continue without the run's record"


@dataclass(frozen=True)
class ModelRecord:
    """A model without its weights; ``shapes`` is a digest of its parameters' names and shapes."""

    class_name: str
    vocabulary: int | None
    parameters: int
    trainable: int
    shapes: str

    def __str__(self) -> str:
        tokens = f", {self.vocabulary} tokens" if self.vocabulary is not None else ""
        return f"{self.class_name}{tokens}, {self.parameters:,} parameters, {self.trainable:,} of them trained"


def model_record(model: torch.nn.Module) -> ModelRecord:
    """That of a ``torch.nn.Module``."""
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
    """By name, as JSON: of ``args``, and of the model's config as ``config.<name>``."""
    args = {name: _plain(getattr(trainer.args, name)) for name in _ARGUMENTS if hasattr(trainer.args, name)}
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


def _plain(value: Any) -> Any:
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


def check_model(before: ModelRecord | None, now: ModelRecord, folder: Any) -> None:
    """Raise ``InvalidArgumentError`` where the weights of the run are not those of this model."""
    if before is not None and (before.class_name, before.shapes) != (now.class_name, now.shapes):
        raise InvalidArgumentError(
            f"the model is another than that of the run in {folder}: {now}; the run's: {before}",
            f"make the model as for that run, or {_ANEW}",
        )


def check_optimizer(before: dict[str, Any], now: dict[str, Any], folder: Any) -> None:
    """Raise ``InvalidArgumentError`` where the optimizer cannot take the state of the run's."""
    was, is_now = before.get("optim"), now.get("optim")
    if isinstance(was, str) and was != is_now and not {was, is_now} <= _SAME_STATE:
        raise InvalidArgumentError(
            f"optim = {is_now!r} cannot continue with the state of the run in {folder}, whose optimizer is {was!r}",
            f"set optim={was!r}, or {_ANEW}",
        )


def check_rows(before: int | None, now: int | None, folder: Any) -> None:
    """Raise ``InvalidArgumentError`` where no position in this data is that of the run."""
    if None not in (before, now) and before != now:
        raise InvalidArgumentError(
            f"train_dataset has {now} rows, that of the run in {folder} was recorded with {before}",
            f"pass the same data, or {_ANEW}, from the weights that you have",
        )


@dataclass
class RunRecord:
    """One run, over all its processes.

    ``batch`` is (samples a device and batch, accumulation, devices); ``gpu`` is (name, bytes), None on a CPU.
    ``limits`` are those of the guard by place, (samples, values); ``micro_batch`` is what a device should take at most
    where the guard cannot split batches; ``foreign`` names checkpoints in the folder that are not of this run;
    ``settings`` and ``model`` are what decides the result besides the data.
    """

    batch: tuple[int, int, int]
    processes: int
    samples: int | None
    gpu: tuple[str, int] | None
    max_steps: int = 0
    limits: dict[str, tuple[int | None, int | None]] = field(default_factory=dict)
    micro_batch: int | None = None
    events: list[GuardEvent] = field(default_factory=list)
    restarts: list[Restart] = field(default_factory=list)
    bad_batches: list[BadBatch] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    model: ModelRecord | None = None

    @property
    def effective_batch(self) -> int:
        """Samples of an optimizer step."""
        size, accumulation, devices = self.batch
        return size * accumulation * devices

    def to_json(self) -> bytes:
        """As ``from_json`` takes it."""
        document = {"schema": _SCHEMA, "effective_batch": self.effective_batch, **asdict(self)}
        return json.dumps(document, indent=1).encode()

    @classmethod
    def from_file(cls, path: Path) -> RunRecord:
        """What ``to_json`` returned. Raises ``CorruptFileError`` and ``VersionMismatchError``."""
        document = read_object(path, "run's record", _HINT)
        if document.pop("schema", None) != _SCHEMA:
            raise VersionMismatchError(f"{path} was written by another version", _HINT)
        effective = document.pop("effective_batch", None)
        record = from_file(cls, document, path, _HINT)
        limits = [limit for pair in record.limits.values() for limit in pair]
        sizes = [*record.batch, record.processes, record.micro_batch, *limits]
        if effective != record.effective_batch or not all(size is None or 0 < size < 1 << 62 for size in sizes):
            raise CorruptFileError(f"{path} is not a record of a run: a size is out of range", _HINT)
        return record


class RunFolder:
    """The record's files of one process. Those that cannot be written are missed only when the run is resumed."""

    def __init__(self, output: Path, rank: int = 0) -> None:
        self.path: Path = output / _FOLDER
        self._suffix = f"-rank{rank}" if rank else ""
        self._has_warned = False

    def read(self) -> RunRecord | None:
        """The record, None where there is none."""
        path = self.path / "run.json"
        return RunRecord.from_file(path) if path.is_file() else None

    def write(self, record: RunRecord) -> None:
        """Put the record in the place of the one that is there."""
        self._write("run.json", record.to_json)

    def read_states(self) -> tuple[dict[str, Any] | None, dict[int, dict[str, Any]]]:
        """The random numbers before the first step, and by the global step at which an epoch begins.

        Those of the first process where this one has none: there were fewer, and orders are common to all.
        """
        begin = self._state(_BEGIN)
        named = (_EPOCH.fullmatch(path.stem) for path in self.path.glob("epoch-*.json"))
        steps = {int(name[1]) for name in named if name}
        epochs = {step: self._state(f"epoch-{step}") for step in steps}
        return begin, {step: state for step, state in epochs.items() if state is not None}

    def write_state(self, state: dict[str, Any], step: int | None = None) -> None:
        """Keep the random numbers of an epoch that begins, or those before the first step."""
        name = _BEGIN if step is None else f"epoch-{step}"
        self._write(f"{name}{self._suffix}.json", lambda: _state_to_json(state))

    def drop_epochs(self, needed: Collection[int] = ()) -> None:
        """Remove the random numbers of this process at other epochs than those ``kept``."""
        for path in self.path.glob("epoch-*.json"):
            name = _EPOCH.fullmatch(path.stem)
            if name and int(name[1]) not in needed and (name[2] or "") == self._suffix:
                path.unlink(missing_ok=True)

    def clear(self) -> None:
        """Remove the record of an earlier run."""
        self.drop_leftovers()
        for path in self.path.glob("*.json"):
            path.unlink(missing_ok=True)

    def drop_leftovers(self) -> None:
        """Remove what killed processes were writing."""
        for path in self.path.glob("*.part"):
            path.unlink(missing_ok=True)

    def _state(self, name: str) -> dict[str, Any] | None:
        for suffix in dict.fromkeys((self._suffix, "")):
            path = self.path / f"{name}{suffix}.json"
            if path.is_file():
                return _state_from_file(path)
        return None

    def _write(self, name: str, data: Callable[[], bytes]) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            write_whole(self.path / name, data())
        except OSError as error:
            if not self._has_warned:
                logger.warning("cannot keep a record of the run (%s): it cannot be resumed exactly", error)
            self._has_warned = True


def folder_of(trainer: Trainer, output: str | os.PathLike[str] | None = None) -> RunFolder:
    """The record's folder of a Trainer's process, in ``output`` if that is not the Trainer's own."""
    return RunFolder(Path(output or trainer.args.output_dir), trainer.args.process_index)


def _state_to_json(state: dict[str, Any]) -> bytes:
    from ..guard.saved_batch import plain_state

    return json.dumps({**plain_state(state), "torch": bytes(state["torch"].tolist()).hex()}).encode()


def _state_from_file(path: Path) -> dict[str, Any]:
    """The state for ``set_cpu_state``, checked on generators of its own."""
    import numpy as np
    import torch

    from ..guard.saved_batch import state_of_plain

    document = read_object(path, "state of random numbers", _HINT)
    try:
        generator = torch.tensor(list(bytes.fromhex(document["torch"])), dtype=torch.uint8)
        state = state_of_plain({**document, "torch": generator})
        random.Random().setstate(state["python"])
        np.random.RandomState().set_state(state["numpy"])
        torch.Generator().set_state(state["torch"])
    except (ValueError, LookupError, TypeError, RuntimeError, OverflowError, AttributeError) as error:
        raise CorruptFileError(f"{path} holds no state of random numbers: {error!r}", _HINT) from error
    return state
