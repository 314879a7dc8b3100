"""Frozen dataclasses from the library's JSON and back, by their type hints.

A field with ``metadata={"local": True}`` exists in Python only.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from typing import Any, TypeVar

from ._errors import InternalError

T = TypeVar("T")
_SCALARS = frozenset((bool, int, float, str, type(None)))
_HINTS: dict[type, dict[str, Any]] = {}  # a type's JSON fields, looked up once


def from_json(cls: type[T], data: dict[str, Any]) -> T:
    """Build ``cls`` from a JSON object whose keys are exactly its fields.

    Tuples and dictionaries may be null in JSON. A missing or an unknown key means that package and library differ, and
    is an ``InternalError``.
    """
    hints = json_fields(cls)
    if data.keys() != hints.keys():
        raise InternalError(
            f"{cls.__name__}: fields {sorted(data.keys() ^ hints.keys())} differ between package and library",
            "reinstall asrconfig-go",
        )
    return cls(**{name: _value(hints[name], data[name]) for name in hints})


def json_fields(cls: Any) -> dict[str, Any]:
    """The fields of a dataclass that are in its JSON, in order, with their type hints."""
    known = _HINTS.get(cls)
    if known is None:
        known = _HINTS[cls] = _remote_fields(cls)
    return known


def _remote_fields(cls: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(cls)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls) if not field.metadata.get("local")}


def _value(hint: Any, value: Any) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if value is None:
        return {tuple: (), dict: {}}.get(origin)
    if origin in (types.UnionType, typing.Union):
        return _value(next(a for a in arguments if a is not type(None)), value)
    if origin is tuple:
        return _items(arguments[0], value)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return from_json(hint, value)
    if hint is float and isinstance(value, int):
        return float(value)
    return value


def _items(hint: Any, values: list[Any]) -> tuple[Any, ...]:
    """Columns of numbers are long: they are not looked at one by one."""
    if hint in (int, str, int | None):
        return tuple(values)
    if hint in (float, float | None):
        return tuple([v if v is None else float(v) for v in values])
    return tuple(_value(hint, item) for item in values)


def to_json(record: Any) -> Any:
    """The JSON object of a dataclass built by ``from_json``, nested ones included."""
    if dataclasses.is_dataclass(record) and not isinstance(record, type):
        return {name: to_json(getattr(record, name)) for name in json_fields(type(record))}
    if isinstance(record, tuple | list):
        if _SCALARS.issuperset(map(type, record)):
            return list(record)
        return [to_json(item) for item in record]
    return record
