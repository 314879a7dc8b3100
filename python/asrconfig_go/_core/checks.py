"""Checks of values and names that people assign or pass, and the nearest known name."""

from __future__ import annotations

import dataclasses
import difflib
import math
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from ..errors import InvalidArgumentError
from .output import with_article

T = TypeVar("T")
_MAX_SECONDS = 86_400.0  # a day


def checked(name: str, value: Any, annotation: Any) -> Any:
    """Return ``value`` if it fits a type annotation, else raise ``InvalidArgumentError``.

    Whole numbers become floats where ``annotation`` is float, and NumPy's numbers become Python's. Booleans are not
    accepted as numbers, floats must be finite, and values of a ``Literal`` must be one of its choices.
    """
    value = plain(value)
    allowed = _alternatives(annotation)
    if value is None and type(None) in allowed:
        return None
    choices = [choice for a in allowed if typing.get_origin(a) is typing.Literal for choice in typing.get_args(a)]
    if choices:
        return one_of(name, value, [False, True, *choices] if bool in allowed else choices)
    kind = next(a for a in allowed if a is not type(None))
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    expected = typing.get_origin(kind) or kind
    if not isinstance(value, expected) or (isinstance(value, bool) and kind is not bool):
        in_words = _type_in_words(expected)
        raise InvalidArgumentError(f"{name} = {value!r} is not {in_words}", f"pass {in_words}")
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidArgumentError(f"{name} = {value!r} is not finite", "pass a finite number")
    return value


def _alternatives(annotation: Any) -> tuple[Any, ...]:
    """The types of a union; of any other annotation itself."""
    is_union = typing.get_origin(annotation) in (types.UnionType, typing.Union)
    return typing.get_args(annotation) if is_union else (annotation,)


def in_range(name: str, value: object, low: float, high: float, hint: str, kind: type = float) -> Any:
    """A number of ``kind`` from ``low`` to ``high``; ``InvalidArgumentError`` for anything else."""
    number = checked(name, value, kind)
    if not low <= number <= high:
        raise InvalidArgumentError(f"{name} = {number} is not between {low} and {high}", hint)
    return number


def at_least(name: str, value: object, low: float, hint: str, kind: type = int) -> Any:
    """A number of ``kind`` that is not below ``low``; ``InvalidArgumentError`` for anything else."""
    number = checked(name, value, kind)
    if number < low:
        raise InvalidArgumentError(f"{name} = {number} is less than {low}", hint)
    return number


def one_of(name: str, value: T, allowed: Sequence[object]) -> T:
    """Return ``value`` if it is one of ``allowed``, else raise ``InvalidArgumentError``.

    Texts are compared by value, everything else by identity: 1 is not True.
    """
    if any(value is a or (isinstance(a, str) and isinstance(value, str) and value == a) for a in allowed):
        return value
    words = ", ".join(repr(a) for a in allowed)
    raise InvalidArgumentError(f"{name} = {value!r} is not one of {words}", f"choose one of {words}")


def check_seed(seed: object) -> None:
    """Raise ``InvalidArgumentError`` for seeds that torch, NumPy or the Trainer would refuse."""
    if not 0 <= checked("seed", seed, int) < 1 << 32:
        raise InvalidArgumentError(f"seed = {seed} is out of range", "choose 0 or more, below 2**32")


def checked_list(name: str, values: object, annotation: Any) -> list[Any]:
    """``checked`` for each of several values."""
    return [checked(name, value, annotation) for value in listed(name, values)]


def listed(name: str, values: object) -> list[Any]:
    """The values of an iterable; ``InvalidArgumentError`` for a single value, text and dictionaries."""
    if isinstance(values, str | bytes | dict) or not hasattr(values, "__iter__"):
        raise InvalidArgumentError(f"{name} = {values!r} is not a list", "pass a list")
    return list(values)


def plain(value: Any) -> Any:
    """Convert a NumPy scalar to Python's number; return anything else unchanged."""
    is_scalar = type(value).__module__ == "numpy" and getattr(value, "shape", None) == ()
    return value.item() if is_scalar else value


def _type_in_words(kind: type) -> str:
    names = {int: "a whole number", float: "a number", bool: "True or False", str: "text", dict: "a dictionary"}
    return names.get(kind, with_article(kind.__name__))


def check_seconds(name: str, seconds: object) -> float:
    """Return a duration above 0 and up to a day, else raise ``InvalidArgumentError``."""
    value: float = checked(name, seconds, float)
    if not 0 < value <= _MAX_SECONDS:
        raise InvalidArgumentError(
            f"{name} = {seconds!r} is not a duration above 0 and up to a day", "pass the longest clip in seconds"
        )
    return value


# Each row: names by which this library and others call the same setting.
_SYNONYMS = (
    ("num_train_epochs", "epochs", "num_epochs", "n_epochs", "max_epochs"),
    ("target_batch_size", "batch_size", "effective_batch_size", "train_batch_size", "global_batch_size"),
    ("base_learning_rate", "learning_rate", "lr", "base_lr"),
    ("optimizer", "optim"),
    ("gradient_checkpointing", "activation_checkpointing", "checkpointing"),
    ("max_length_s", "max_length", "max_duration", "max_seconds", "max_audio_length"),
    ("lora_rank", "lora_r", "lora", "rank"),
    ("safety_margin", "margin"),
    ("gpu", "gpus", "gpu_name"),
)
_PRECISIONS = ("fp16", "bf16", "fp32")


def nearest(name: str, names: Iterable[str], count: int = 1, cutoff: float = 0.6) -> str:
    """``did you mean 'epochs'?``; "" where no name is near."""
    near = difflib.get_close_matches(name, list(names), n=count, cutoff=cutoff)
    return f"did you mean {' or '.join(map(repr, near))}?" if near else ""


def check_keywords(
    settings: Mapping[str, object], accepted: Iterable[str], owner: str, planned: Iterable[str] = ()
) -> None:
    """Raise ``InvalidArgumentError`` for the first setting that ``owner`` does not accept, with the likely name.

    ``planned`` are settings that a plan has once it is made.
    """
    names = list(accepted)
    for name, value in settings.items():
        if name not in names:
            raise InvalidArgumentError(f"{owner} takes no {name!r}", _hint(name, value, names, set(planned)))


def _hint(name: str, value: object, accepted: list[str], planned: set[str]) -> str:
    meant = next((other for group in _SYNONYMS if name in group for other in group if other in accepted), None)
    if meant is not None:
        return f"did you mean {meant}={value!r}?"
    if name in _PRECISIONS and "precision" in accepted:
        return f'did you mean precision="{name}"?'
    if name in planned:
        return f"set it in the plan: config.{name} = {value!r}"
    if planned and _is_training_argument(name):
        others = "output_dir" if name == "output_dir" else f"output_dir, {name}={value!r}"
        return f"it is the Trainer's: config.to_training_arguments({others})"
    near = nearest(name, accepted, cutoff=0.7)
    return near or f"it takes {', '.join(accepted)}"


def _is_training_argument(name: str) -> bool:
    try:
        from transformers import TrainingArguments
    except ImportError:
        return False
    return name in {field.name for field in dataclasses.fields(TrainingArguments)}
