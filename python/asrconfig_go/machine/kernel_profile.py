"""Tables of measured kernels in the user's cache folder, and the profiles of GPUs that follow from them."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

from .._base import native
from .._base.errors import AsrConfigError
from .._base.files import cache_folder, write_whole
from .._base.json_files import read_object

_HINT = "measure the card: asrconfig profile-gpu"
_MAX_CARDS = 64


def read_kernel_profile(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The profile of a card by its table, as plans take it.

    Raises ``NotFoundError`` and ``CorruptFileError`` for a file that is no table, ``InvalidArgumentError`` for one that
    contradicts itself or its card.
    """
    return kernel_profile(read_object(path, "table of kernels", _HINT))


def kernel_profile(table: dict[str, Any]) -> dict[str, Any]:
    """The profile of a card by its table; raises as ``read_kernel_profile``."""
    return dict(native.call("timing.profile", {"table": json.dumps(table)}))


def store_kernel_table(table: dict[str, Any], card: str) -> Path:
    """Keep a table for later plans, in place of an earlier one of its card. Raises ``OSError`` if it cannot."""
    path = cache_folder("kernels") / f"{''.join(c if c.isalnum() else '-' for c in card)}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps(table).encode())
    return path


def known_kernel_profiles() -> list[dict[str, Any]]:
    """The profiles of every measured card; broken tables are ignored."""
    profiles = []
    for path in _paths():
        with contextlib.suppress(AsrConfigError):
            profiles.append(read_kernel_profile(path))
    return profiles


def stored_kernel_tables() -> list[str]:
    """A line for each table of the cache folder: its path, card, day and versions, or why plans do not use it."""
    lines = []
    for path in _paths():
        try:
            table = read_object(path, "table of kernels", _HINT)
            profile = kernel_profile(table)
        except AsrConfigError as error:
            lines.append(f"{path}: not used, {error.message}")
        else:
            versions = f"torch {table['torch']}, CUDA {table['cuda']}, driver {table['driver']}"
            lines.append(f"{path}: {profile['gpu']}, {profile['date']}, {len(table['kernels'])} kernels, {versions}")
    return lines


def _paths() -> list[Path]:
    try:
        return sorted(cache_folder("kernels").glob("*.json"))[:_MAX_CARDS]
    except OSError:
        return []
