"""The fields of a plan: every assignment is checked, and its consequences follow."""

from __future__ import annotations

import copy
import dataclasses
import json
import math
import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from .._core.checks import checked, nearest
from .._core.declared import MARGIN_RANGE, SCHEMA_VERSION, WORDS, Precision, PredictedFor
from .._core.files import read_object, save_whole, user_path
from .._core.native import SOURCE
from .._core.records import from_json, json_fields, to_json
from ..errors import InternalError, InvalidArgumentError, VersionMismatchError
from .plan_records import ConfigRecord

if TYPE_CHECKING:
    from transformers import TrainingArguments

PREDICTED_FOR = frozenset(get_args(PredictedFor))
"""Predicted memory or times no longer hold once one of these is overridden."""
_BATCH, _STEPS, _RATE = "per_device_train_batch_size", "gradient_accumulation_steps", "learning_rate"
BATCH_FIELDS: tuple[str, ...] = (_BATCH, _STEPS)
_OF_A_STEP = (*BATCH_FIELDS, "device_count")
RECOMPUTING = ("gradient_checkpointing", "every_n_layers", "offload_checkpoints")
"""Which layers are computed again."""
_MAX_STEPS = 65_536
_CHECK = "plan again with what create_optimal_config takes of it, or check with estimate_memory before you train"


class OverrideWarning(UserWarning):
    """A setting of a plan was overridden, and predictions or the learning rate are still those of the plan."""


@dataclass
class Overrides:
    """What the user has set in a plan, and how many clips an optimizer step had before."""

    effective: int
    chosen: set[str] = field(default_factory=set)

    def followers(self, config: PlanRecord, changes: Mapping[str, Any]) -> dict[str, Any]:
        """The settings that follow ``changes`` and that the user has not set.

        Accumulation follows the batch, so that a step keeps its clips; of fp16 and bf16 one turns the other off.
        """
        chosen, followers = self.chosen | changes.keys(), dict[str, Any]()
        if _BATCH in changes and _STEPS not in chosen:
            even = round(self.effective / (changes[_BATCH] * config.device_count))
            followers[_STEPS] = min(_MAX_STEPS, max(1, even))
        for name, other in (("fp16", "bf16"), ("bf16", "fp16")):
            if changes.get(name) and other not in changes and getattr(config, other):
                followers[other] = False
        return {name: value for name, value in followers.items() if value != getattr(config, name)}

    def warn(
        self, config: PlanRecord, changes: Mapping[str, Any], followed: Mapping[str, Any], stacklevel: int
    ) -> None:
        """Warn of what no longer holds, where ``changes`` and what follows them change anything of ``config``.

        ``stacklevel`` 1 is the caller.
        """
        different = {name: value for name, value in changes.items() if value != getattr(config, name)}
        after = {**different, **followed}
        words = [f"{name} = {value!r} follows" for name, value in followed.items()]
        if set(_OF_A_STEP) & after.keys():
            clips = math.prod(after.get(name, getattr(config, name)) for name in _OF_A_STEP)
            words.append(self._step_words(config, clips, _RATE in self.chosen | changes.keys()))
        if PREDICTED_FOR & after.keys():
            words.append("predicted memory and times are those of the plan")
        if words:
            named = ", ".join(
                f"{name} = {value!r} instead of {getattr(config, name)!r}" for name, value in different.items()
            )
            warnings.warn(f"{named}: {'; '.join(words)} → {_CHECK}", OverrideWarning, stacklevel=stacklevel + 1)

    def _step_words(self, config: PlanRecord, clips: int, rate_chosen: bool) -> str:
        planned, words = self.effective, WORDS[config.row_kind]
        if clips == planned:
            return f"a step keeps its {words.count(planned)}"
        step = f"a step has {words.count(clips)} instead of {planned}"
        power = {"sqrt": 0.5, "linear": 1.0}.get(config.lr_scaling)
        if power is None or rate_chosen:
            return step
        scaled = config.learning_rate * (clips / planned) ** power
        rate = f"learning_rate = {config.learning_rate:.3g} is for {planned}"
        return f"{step}, and {rate}: {config.lr_scaling} scaling gives {scaled:.3g} for {clips}"


P = TypeVar("P", bound="PlanRecord")

FILE = "training_config.json"
"""The plan's file in the folder of a training."""


def _between(low: float, high: float) -> Callable[[Any], str]:
    return lambda value: "" if low <= value <= high else f"must be between {low:g} and {high:g}"


# Ranges of the fields that have one; each rule gives "" or what is wrong.
_RULES: dict[str, Callable[[Any], str]] = {
    "schema_version": _between(SCHEMA_VERSION, SCHEMA_VERSION),
    "device_count": _between(1, 1024),
    "dataloader_num_workers": _between(0, 256),
    "dataloader_prefetch_factor": _between(1, 256),
    "learning_rate": _between(1e-12, 10),
    "num_train_epochs": _between(1e-6, 1e6),
    "seed": _between(0, 2**32 - 1),
    "safety_margin": _between(*MARGIN_RANGE),
    "lora_rank": _between(0, 65536),
    **dict.fromkeys(("warmup_ratio", "weight_decay"), _between(0, 1)),
    **dict.fromkeys(("max_grad_norm", "micro_batch_overhead_s", "micro_batch_host_s"), _between(0, 1e6)),
    **dict.fromkeys(("chunk_length_s", "max_length_s"), _between(0.1, 86400)),
    **dict.fromkeys(("eval_steps", "save_steps", "eval_samples"), _between(1, 2**31)),
    **dict.fromkeys(
        (
            "target_batch_size", "per_device_train_batch_size", "per_device_eval_batch_size", "micro_batch_size",
            "gradient_accumulation_steps", "eval_accumulation_steps",
        ),
        _between(1, 65536),
    ),
}  # fmt: skip


@dataclasses.dataclass(repr=False)
class PlanRecord(ConfigRecord):
    """What ``TrainingConfig`` holds, without what can be done with it.

    Assigning an attribute checks its type and range and raises ``InvalidArgumentError``; unknown names are refused with
    the nearest known one. Sizes are bytes, durations seconds.
    """

    @property
    def effective_batch_size(self) -> int:
        """The clips of an optimizer step: micro-batch × accumulation × devices."""
        return self.per_device_train_batch_size * self.gradient_accumulation_steps * self.device_count

    @property
    def precision(self) -> Precision:
        """``"bf16"``, ``"fp16"`` or ``"fp32"``."""
        return "bf16" if self.bf16 else "fp16" if self.fp16 else "fp32"

    @property
    def overrides(self) -> Overrides:
        """The settings that the user has overridden since the plan was made."""
        return vars(self)["_overrides"]  # type: ignore[no-any-return]

    def __setattr__(self, name: str, value: object) -> None:
        if name not in json_fields(PlanRecord):
            raise InvalidArgumentError(f"TrainingConfig has no setting {name!r}", _nearest(name))
        value = checked_setting(name, value)
        if "_overrides" in vars(self):  # not while it is made
            followed = self.overrides.followers(self, {name: value})
            self.overrides.warn(self, {name: value}, followed, stacklevel=2)
            self.overrides.chosen.add(name)
            if self.unguarded is not None and name in PREDICTED_FOR and value != getattr(self, name):
                changed = {name: value, **followed}
                step = {key: changed.get(key, getattr(self, key)) for key in BATCH_FIELDS}
                # Other settings than the batch may need another one there.
                followed["unguarded"] = dataclasses.replace(self.unguarded, **step) if name in step else None
            vars(self).update(followed)
        object.__setattr__(self, name, value)

    def __post_init__(self) -> None:
        vars(self)["_overrides"] = Overrides(self.effective_batch_size)

    def without_guard(self: P) -> P:
        """Return the plan as a Trainer without the guard carries it out: with the fixed batch that is fastest there.

        Returns:
            A copy; of a plan with fixed batches, an equal one.
        """
        alone = copy.copy(self)
        if self.unguarded is not None:
            names = (*BATCH_FIELDS, "micro_batch_size", *RECOMPUTING)
            vars(alone).update({name: getattr(self.unguarded, name) for name in names}, unguarded=None)
        return alone

    def largest_share(self, args: TrainingArguments) -> int:
        """Return the most clips of one process in an optimizer step.

        Args:
            args: The Trainer's arguments. GPUs of different speed have the planned shares.

        Returns:
            The number of clips.
        """
        share: int = args.train_batch_size * args.gradient_accumulation_steps
        return max([share, *(device.samples for device in self.devices)])

    def fits_whole(self, args: TrainingArguments) -> bool:
        """Return whether the share of each process in an optimizer step fits into memory at once.

        Args:
            args: The Trainer's arguments.

        Returns:
            Whether it fits.
        """
        return self.micro_batch_size >= self.largest_share(args)

    def to_dict(self) -> dict[str, Any]:
        """Return the configuration as the JSON object that ``save`` writes."""
        return dict(to_json(self))

    @classmethod
    def from_dict(cls: type[P], data: dict[str, Any]) -> P:
        """Make a configuration from what ``to_dict`` returned.

        Args:
            data: The JSON object, with every setting.

        Returns:
            The configuration.

        Raises:
            InvalidArgumentError: A setting is unknown, missing, of the wrong type or out of range.
            VersionMismatchError: A newer version of the package wrote it.
        """
        version = checked("data", data, dict).get("schema_version")
        if isinstance(version, int) and version > SCHEMA_VERSION:
            raise VersionMismatchError(
                f"the configuration has schema version {version}, this package reads up to {SCHEMA_VERSION}",
                f"pip install -U {SOURCE}",
            )
        for name in data:
            if name not in json_fields(PlanRecord):
                raise InvalidArgumentError(f"the configuration has an unknown setting {name!r}", _nearest(name))
        data = {"rule": None, **data}  # the library leaves it out where none was given
        missing = [name for name in json_fields(PlanRecord) if name not in data]
        if missing:
            raise InvalidArgumentError(
                f"the configuration lacks {', '.join(missing)}", "save it again with save_config"
            )
        try:
            return from_json(cls, {name: data[name] for name in json_fields(PlanRecord)})
        except InternalError as error:
            raise InvalidArgumentError(
                f"in the configuration, {error.message}", "save it again with save_config"
            ) from error

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the configuration as JSON, completely or not at all.

        Args:
            path: The file to write.

        Raises:
            NotFoundError: The file cannot be written.
        """
        text = json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False)
        save_whole(Path(path), text.encode())

    @classmethod
    def load(cls: type[P], path: str | os.PathLike[str]) -> P:
        """Read what ``save`` wrote, or what a training left in its output folder.

        Args:
            path: The file, or the folder.

        Returns:
            The configuration.

        Raises:
            NotFoundError: The file does not exist.
            CorruptFileError: The file is no JSON object.
            InvalidArgumentError: A setting is unknown, missing, of the wrong type or out of range.
            VersionMismatchError: A newer version of the package wrote it.
        """
        file = user_path(path, "configuration")
        file = file / FILE if file.is_dir() else file
        return cls.from_dict(read_object(file, "configuration", "name a file that save_config wrote"))


def _nearest(name: str) -> str:
    return nearest(name, json_fields(PlanRecord), 2) or "see dataclasses.fields(TrainingConfig) for all settings"


def checked_setting(name: str, value: object) -> Any:
    """``value`` as the setting ``name`` takes it. Raises ``InvalidArgumentError`` for a wrong type or range."""
    value = checked(name, value, json_fields(PlanRecord)[name])
    if name in _RULES and value is not None and (problem := _RULES[name](value)):
        raise InvalidArgumentError(f"{name} = {value!r} {problem}", "choose a value in that range")
    return value
