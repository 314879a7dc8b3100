"""Frozen dataclasses from the library's JSON and back, by their type hints.

A field with ``metadata={"local": True}`` exists in Python only.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import types
import typing
from typing import Any, TypeVar

from ..errors import CorruptFileError, InternalError
from .output import shortened

T = TypeVar("T")
_SCALARS = frozenset((bool, int, float, str, type(None)))
_REINSTALL = "reinstall asrconfig-go"


def from_json(cls: type[T], data: dict[str, Any]) -> T:
    """Build ``cls`` from a JSON object whose keys are exactly its fields.

    Tuples and dictionaries may be null in JSON. A missing or unknown key and a value of another type mean that package
    and library differ, and raise an ``InternalError``; see ``from_file`` for files that people can change.
    """
    hints = json_fields(cls)
    if not isinstance(data, dict):
        raise InternalError(f"{_shortened(data)} is no {cls.__name__}", _REINSTALL)
    if data.keys() != hints.keys():
        raise InternalError(
            f"{cls.__name__}: fields {sorted(data.keys() ^ hints.keys())} differ between package and library",
            _REINSTALL,
        )
    values = {}
    for name, hint in hints.items():
        try:
            values[name] = _value(hint, data[name])
        except InternalError as error:
            within = "." if isinstance(data[name], dict) and dataclasses.is_dataclass(hint) else " = "
            raise InternalError(f"{name}{within}{error.message}", _REINSTALL) from error
    return cls(**values)


def from_file(cls: type[T], data: dict[str, Any], path: object, hint: str) -> T:
    """``from_json`` of what a file held: ``CorruptFileError`` with its name and ``hint`` for anything else."""
    try:
        return from_json(cls, data)
    except InternalError as error:
        raise CorruptFileError(f"{path} cannot be read: {error.message}", hint) from error


def json_fields(cls: type) -> dict[str, Any]:
    """The fields of a dataclass that are in its JSON, in order, with their type hints."""
    return _json_fields(cls)


@functools.cache
def _json_fields(cls: type) -> dict[str, Any]:
    hints = typing.get_type_hints(cls)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls) if not field.metadata.get("local")}


def _value(hint: Any, value: Any) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return None if value is None else _value(next(a for a in arguments if a is not type(None)), value)
    if origin is typing.Literal:
        if value in arguments:
            return value
        raise InternalError(f"{_shortened(value)} is not one of {', '.join(map(repr, arguments))}", _REINSTALL)
    if origin is not None:
        return _container(origin, arguments, value)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return from_json(hint, value)
    if hint is float and type(value) in (int, float):
        return _float(value)
    if hint is Any or type(value) is hint or (hint is dict and isinstance(value, dict)):
        return value
    raise InternalError(f"{_shortened(value)} is not {_named(hint)}", _REINSTALL)


def _container(origin: Any, arguments: tuple[Any, ...], value: Any) -> Any:
    if value is None and (origin is dict or arguments[-1] is Ellipsis):
        return origin()
    if origin is dict and isinstance(value, dict):
        return {name: _value(arguments[1], item) for name, item in value.items()}
    if origin is dict or not isinstance(value, list):
        raise InternalError(f"{_shortened(value)} is not {_named(origin)}", _REINSTALL)
    if origin is tuple and arguments[-1] is not Ellipsis:
        if len(value) != len(arguments):
            raise InternalError(f"{_shortened(value)} has not {len(arguments)} values", _REINSTALL)
        return tuple(_value(hint, item) for hint, item in zip(arguments, value, strict=True))
    return origin(_items(arguments[0], value))


def _items(hint: Any, values: list[Any]) -> list[Any]:
    """Columns of numbers are long: their types are checked all at once."""
    kinds = set(map(type, values))
    kind = next((a for a in typing.get_args(hint) if a is not type(None)), hint)
    if kind in (int, str) and kinds <= {kind, *([type(None)] if kind is not hint else [])}:
        return values
    if kind is float and kinds <= {int, float, *([type(None)] if kind is not hint else [])}:
        if kinds == {float} and all(map(math.isfinite, values)):
            return values
        return [None if v is None else _float(v) for v in values]
    return [_value(hint, item) for item in values]


def _float(value: int | float) -> float:
    try:
        if math.isfinite(number := float(value)):
            return number
    except OverflowError:  # a whole number beyond all floats
        pass
    raise InternalError(f"{_shortened(value)} is not a finite number", _REINSTALL)


def _named(kind: type) -> str:
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "text", dict: "an object"}
    return names.get(kind, "a list" if kind in (tuple, list) else kind.__name__)


def _shortened(value: object) -> str:
    return shortened(repr(value), 60)


def to_json(record: object) -> Any:
    """The JSON object of a dataclass built by ``from_json``, nested ones included."""
    if dataclasses.is_dataclass(record) and not isinstance(record, type):
        return {name: to_json(getattr(record, name)) for name in json_fields(type(record))}
    if isinstance(record, tuple | list):
        if _SCALARS.issuperset(map(type, record)):
            return list(record)
        return [to_json(item) for item in record]
    return record
