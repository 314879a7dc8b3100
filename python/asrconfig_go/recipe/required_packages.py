"""The packages that a fine-tuning needs and this one does not depend on."""

from __future__ import annotations

from importlib.util import find_spec

from .._base.errors import UnsupportedError


def need(feature: str, *packages: str) -> None:
    """Raise ``UnsupportedError`` naming those of ``packages`` that are not installed."""
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise UnsupportedError(f"{feature} needs {', '.join(missing)}", f"pip install {' '.join(missing)}")
