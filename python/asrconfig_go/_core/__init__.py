"""What all packages share: the native library, records, files, output, random numbers, collated batches.

``lazy_names`` looks up a package's public names when they are first used. Importing a package then takes milliseconds
whatever its modules need, torch included, and a forked worker that needs one class does not build all others. Types:
the ``__init__.pyi`` beside it, which ``build/stubs.py`` writes.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def lazy_names(
    package: str, names: Mapping[str, tuple[str, ...]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """``__getattr__``, ``__dir__`` and ``__all__`` of a package that has these ``names`` in its modules."""
    module_of = {name: module for module, members in names.items() for name in members}
    public = sorted(module_of)

    def look_up(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            value = getattr(import_module(f".{module_of[name]}", package), name)
        except AttributeError as error:  # which Python would report as if the package had no such name
            raise ImportError(f"importing {name} of {package}: {error}") from error
        setattr(sys.modules[package], name, value)
        return value

    def listed() -> list[str]:
        return sorted({*vars(sys.modules[package]), *public})

    return look_up, listed, public
