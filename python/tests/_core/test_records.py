"""Dataclasses from JSON and back."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from asrconfig_go._core.records import from_json, to_json
from asrconfig_go.errors import InternalError


@dataclass(frozen=True)
class _Columns:
    integers: tuple[int | None, ...]
    parts: tuple[float | None, ...]
    names: tuple[str, ...]
    nested: tuple[tuple[float, ...], ...]


def test_columns_keep_what_is_not_known_and_become_floats_where_floats_are_told() -> None:
    data = {"integers": [1, None, 2**50], "parts": [1, None, 2.5], "names": ["a"], "nested": [[1, 2], []]}
    columns = from_json(_Columns, data)
    assert columns == _Columns((1, None, 2**50), (1.0, None, 2.5), ("a",), ((1.0, 2.0), ()))
    assert isinstance(columns.parts[0], float)
    assert isinstance(columns.nested[0][0], float)
    assert isinstance(columns.integers[0], int)
    assert to_json(columns) == data
    assert from_json(_Columns, {**data, "integers": None}).integers == ()


def test_another_set_of_fields_is_refused() -> None:
    with pytest.raises(InternalError, match="nested"):
        from_json(_Columns, {"integers": [], "parts": [], "names": []})
