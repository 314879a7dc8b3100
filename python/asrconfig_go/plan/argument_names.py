"""Settings by the names and types of the installed ``TrainingArguments``."""

from __future__ import annotations

import dataclasses
import enum
import math
import typing
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from .._core.checks import checked, nearest, one_of
from .._core.modules import installed_version
from .._core.records import json_fields
from ..errors import InvalidArgumentError, UnsupportedError
from .plan_record import PlanRecord, checked_setting

if TYPE_CHECKING:
    from transformers import TrainingArguments


def _group_by_length(strategy: object) -> bool:
    if strategy not in ("group_by_length", "random"):
        raise InvalidArgumentError(
            f"train_sampling_strategy = {strategy!r} is not supported by the installed transformers",
            'it knows "random" and "group_by_length"',
        )
    return bool(strategy == "group_by_length")


def _fraction_of_steps(ratio: float) -> float:
    """A ratio as ``warmup_steps``, where numbers below 1 are a fraction of all steps, and 1 is a single step."""
    return min(float(ratio), math.nextafter(1.0, 0.0))


def _identity(value: Any) -> Any:
    return value


@dataclasses.dataclass(frozen=True)
class _Rename:
    """The older and the newer name of a TrainingArguments field, and how values convert between them.

    The newer name is used wherever it exists. ``to_old`` is None where the older name cannot replace the newer one.
    """

    old: str
    new: str
    to_new: Callable[[Any], Any] = _identity
    to_old: Callable[[Any], Any] | None = _identity


_RENAMES = (
    _Rename("evaluation_strategy", "eval_strategy"),
    _Rename("gradient_checkpointing", "activation_checkpointing"),
    _Rename("gradient_checkpointing_kwargs", "activation_checkpointing_kwargs"),
    _Rename(
        "group_by_length", "train_sampling_strategy", lambda on: "group_by_length" if on else "random", _group_by_length
    ),
    _Rename("warmup_ratio", "warmup_steps", _fraction_of_steps, None),
    _Rename("no_cuda", "use_cpu"),
    _Rename("per_gpu_train_batch_size", "per_device_train_batch_size", to_old=None),
)

_REMOVED_HINTS = {
    "logging_dir": "the installed transformers takes it from the environment variable TENSORBOARD_LOGGING_DIR",
    "tokenizer": "pass the processor to the Trainer, as processing_class",
}


def named(settings: Mapping[str, Any], arguments_class: type[TrainingArguments] | None = None) -> dict[str, Any]:
    """Rename settings, with older or newer names, to those of ``arguments_class`` (default ``TrainingArguments``).

    Raises ``InvalidArgumentError`` for an unknown name, ``UnsupportedError`` without transformers.
    """
    return ArgumentFields(arguments_class or default_class()).resolve(dict(settings))


def class_for(overrides: Mapping[str, Any]) -> type[TrainingArguments]:
    """The class that has all of these names: that of a ``Seq2SeqTrainer`` where the usual one does not."""
    usual = default_class()
    from transformers import Seq2SeqTrainingArguments

    own, others = ({f.name for f in dataclasses.fields(cls)} for cls in (Seq2SeqTrainingArguments, usual))
    return Seq2SeqTrainingArguments if (own - others) & set(overrides) else usual


def transformers_version() -> str:
    """The package with its version, in words."""
    return f"transformers {installed_version('transformers')}"


def default_class() -> type[TrainingArguments]:
    """Return ``transformers.TrainingArguments``; raise ``UnsupportedError`` without transformers."""
    try:
        from transformers import TrainingArguments
    except ImportError as error:
        raise UnsupportedError(
            f"building TrainingArguments needs transformers, torch and accelerate: {error}",
            "pip install transformers torch accelerate",
        ) from error
    arguments_class: type[TrainingArguments] = TrainingArguments
    return arguments_class


class ArgumentFields:
    """The fields of one class of arguments, by name."""

    def __init__(self, cls: type[TrainingArguments]) -> None:
        self.cls = cls
        self.types = {field.name: str(field.type) for field in dataclasses.fields(self.cls) if field.init}

    def __contains__(self, name: str) -> bool:
        return name in self.types

    def has_warmup_ratio(self, name: str) -> bool:
        """Whether ``name`` is warmup_ratio, and the installed version still uses it.

        Since ``warmup_steps`` takes fractions, the ratio is deprecated or removed.
        """
        return name == "warmup_ratio" and name in self and "float" not in self.types["warmup_steps"]

    def resolve(self, overrides: dict[str, Any]) -> dict[str, Any]:
        """The overrides converted to the names and values of this class."""
        resolved: dict[str, Any] = {}
        for passed_name, value in overrides.items():
            name, value = self.translate(passed_name, value)
            if name == "output_dir":
                raise InvalidArgumentError("output_dir is passed twice", "pass it once, as the first argument")
            if name in resolved:
                raise InvalidArgumentError(f"{name!r} is passed twice, once as {passed_name!r}", "keep one of the two")
            resolved[name] = value
        return resolved

    def translate(self, name: str, value: Any) -> tuple[str, Any]:
        """Convert a setting to the newest name of this class; raise ``InvalidArgumentError`` for an unknown one."""
        for rename in _RENAMES:
            if name == rename.old and rename.new in self and not self.has_warmup_ratio(name):
                return rename.new, rename.to_new(value)
            if name == rename.new and name not in self and rename.old in self and rename.to_old:
                return rename.old, rename.to_old(value)
        if name in self:
            return name, value
        raise self.unknown(name)

    def check(self, name: str, value: object) -> None:
        """Raise ``InvalidArgumentError`` for an unknown name and for a value of another type."""
        if name not in self:
            if not any(name in (rename.old, rename.new) for rename in _RENAMES):
                raise self.unknown(name)
            return
        hint = typing.get_type_hints(self.cls)[name]
        types = typing.get_args(hint)
        for choices in types:
            if isinstance(choices, type) and issubclass(choices, enum.Enum):
                one_of(name, value, [choice.value for choice in choices])
        if str not in types:
            checked(name, value, hint)

    def unknown(self, name: str) -> InvalidArgumentError:
        """The error for a name that this class does not have."""
        names = [*self.types, *(rename.old for rename in _RENAMES)]
        return InvalidArgumentError(
            f"the installed {self.cls.__name__} ({transformers_version()}) has no setting {name!r}",
            _REMOVED_HINTS.get(name) or nearest(name, names) or f"see dataclasses.fields({self.cls.__name__})",
        )


def check_settings(settings: Mapping[str, Any]) -> None:
    """Raise ``InvalidArgumentError`` for an unknown name, a wrong type, and what is out of a plan's range."""
    from transformers import Seq2SeqTrainingArguments

    fields = ArgumentFields(Seq2SeqTrainingArguments)
    for name, value in settings.items():
        if name in json_fields(PlanRecord):
            checked_setting(name, value)
        else:
            fields.check(name, value)
