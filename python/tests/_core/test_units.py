"""Sizes and counts as people read them; the library's have the same rules (core/units, core/view)."""

from __future__ import annotations

import pytest

from asrconfig_go._core.render import exact, parameter_count


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (None, "–"),
        (1.5e9, "1.40 GiB"),
        (38e6, "36.2 MiB"),
        (3e3, "2.9 KiB"),
        (48, "48 B"),
        (0, "0 B"),
        (-3e3, "-2.9 KiB"),
    ],
)
def test_sizes(size: float | None, text: str) -> None:
    assert exact(size) == text


@pytest.mark.parametrize(("count", "text"), [(94_395_680, "94.4 M"), (8192, "8.2 k"), (65, "65"), (0, "0")])
def test_numbers_of_parameters(count: int, text: str) -> None:
    assert parameter_count(count) == text
