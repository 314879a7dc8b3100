"""Type checks of values that people assign or pass, by their type hints."""

from __future__ import annotations

import math
import types
import typing
from collections.abc import Sequence
from typing import Any

from .errors import InvalidArgumentError

_MAX_SECONDS = 86_400.0
MARGIN_RANGE = (0.70, 0.95)  # of the safety margin, as core/plan has it


def checked(name: str, value: Any, hint: Any) -> Any:
    """Return ``value`` if it fits ``hint``, else raise ``InvalidArgumentError``.

    Whole numbers become floats where ``hint`` is float, and NumPy's numbers become Python's. Booleans are not accepted
    as numbers, floats must be finite, and values of a ``Literal`` must be one of its choices.
    """
    value = plain(value)
    allowed = typing.get_args(hint) if typing.get_origin(hint) in (types.UnionType, typing.Union) else (hint,)
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
        raise InvalidArgumentError(f"{name} = {value!r} is not {_words(expected)}", f"pass {_words(expected)}")
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidArgumentError(f"{name} = {value!r} is not finite", "pass a finite number")
    return value


def one_of(name: str, value: Any, allowed: Sequence[Any]) -> Any:
    """Return ``value`` if it is one of ``allowed``, else raise ``InvalidArgumentError``."""
    if any(value is a or (isinstance(a, str) and isinstance(value, str) and value == a) for a in allowed):
        return value
    words = ", ".join(repr(a) for a in allowed)
    raise InvalidArgumentError(f"{name} = {value!r} is not one of {words}", f"choose one of {words}")


def check_seed(seed: Any) -> None:
    """Raise ``InvalidArgumentError`` for seeds that torch, NumPy or the Trainer would refuse."""
    if not 0 <= checked("seed", seed, int) < 1 << 32:
        raise InvalidArgumentError(f"seed = {seed} is out of range", "choose 0 or more, below 2**32")


def checked_list(name: str, values: Any, hint: Any) -> list[Any]:
    """``checked`` for each of several values."""
    return [checked(name, value, hint) for value in listed(name, values)]


def listed(name: str, values: Any) -> list[Any]:
    """The values of an iterable; ``InvalidArgumentError`` for a single value, text and dictionaries."""
    if isinstance(values, str | bytes | dict) or not hasattr(values, "__iter__"):
        raise InvalidArgumentError(f"{name} = {values!r} is not a list", "pass a list")
    return list(values)


def plain(value: Any) -> Any:
    """Convert a NumPy scalar to Python's number; return anything else unchanged."""
    scalar = type(value).__module__ == "numpy" and getattr(value, "shape", None) == ()
    return value.item() if scalar else value


def _words(kind: type) -> str:
    names = {int: "a whole number", float: "a number", bool: "True or False", str: "text", dict: "a dictionary"}
    return names.get(kind, f"a {kind.__name__}")


def check_seconds(name: str, seconds: Any) -> float:
    """Return a duration above 0 and up to a day, else raise ``InvalidArgumentError``."""
    value: float = checked(name, seconds, float)
    if not 0 < value <= _MAX_SECONDS:
        raise InvalidArgumentError(
            f"{name} = {seconds!r} is not a duration above 0 and up to a day", "pass the longest clip in seconds"
        )
    return value
