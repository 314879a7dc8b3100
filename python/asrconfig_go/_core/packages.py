"""Packages that only some features need: what to install where they are missing."""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import Any

from ..errors import UnsupportedError


def need(feature: str, *packages: str) -> None:
    """Raise ``UnsupportedError`` naming those of ``packages`` that are not installed."""
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise UnsupportedError(f"{feature} needs {', '.join(missing)}", f"pip install {' '.join(missing)}")


def imported(module: str, feature: str, hint: str = "") -> Any:
    """Import ``module`` for ``feature``; ``UnsupportedError`` where its package is missing."""
    package = module.partition(".")[0]
    try:
        importlib.import_module(package)
        return importlib.import_module(module)
    except ImportError as error:
        raise UnsupportedError(f"{feature} needs {package}", hint or f"pip install {package}") from error
