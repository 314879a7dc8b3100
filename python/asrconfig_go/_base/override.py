"""Overrides of methods of one object, and their removal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

GUARD_KEY: Final = "_asrconfig_guard"
"""The attribute of a Trainer, and of its ``CallbackHandler``, that holds its guard."""

BATCHES_KEY: Final = "_asrconfig_batches"
"""The attribute of a Trainer that holds the part of chosen batches which its process gets."""

CHECKED_KEY: Final = "_asrconfig_checked"
"""The attribute of a Trainer's ``CallbackHandler`` while a manager has checked its arguments, and said what it met."""


def override(owner: Any, name: str, function: Any) -> Callable[[], None]:
    """Put ``function`` in the place of a method of one object; returns the function that restores it."""
    before = owner.__dict__.get(name)
    setattr(owner, name, function)

    def undo() -> None:
        if before is None:
            delattr(owner, name)
        else:
            setattr(owner, name, before)

    return undo
