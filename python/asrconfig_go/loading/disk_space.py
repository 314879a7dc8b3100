"""Limits on the disk space of a cache."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from ..view.units import exact
from .clip_files import clip_files

_AGAIN_S = 60.0  # before a full folder is looked at again
_SHARE = 16  # of the remaining space may one process fill before it measures again


class Room:
    """The disk space left in a folder, as far as this process knows: others may fill it too."""

    def __init__(self, folder: Path, max_bytes: int | None, keep_free_bytes: int) -> None:
        self._folder, self._max_bytes, self._keep_free_bytes = folder, max_bytes, keep_free_bytes
        self._until_look = 0  # bytes to write before the folder is measured again
        self._full_until = float("-inf")
        self._stopped = ""

    def refusal(self, size: int) -> str:
        """Why a clip of ``size`` bytes must not be written, or \"\"."""
        if self._stopped:
            return self._stopped
        free = shutil.disk_usage(self._folder).free
        if free - size < self._keep_free_bytes:
            return f"the disk has {exact(free)} free, of which {exact(self._keep_free_bytes)} are kept for checkpoints"
        if self._max_bytes is not None and size > self._until_look and not self._look(size):
            return f"the clips take max_bytes = {exact(self._max_bytes)}"
        return ""

    def written(self, size: int) -> None:
        """A file of ``size`` bytes was written."""
        self._until_look -= size

    def stop(self, reason: str) -> str:
        """Refuse all further clips for ``reason``, and return it."""
        self._stopped = reason
        return reason

    def _look(self, size: int) -> bool:
        """Measure the folder, and return whether a clip of ``size`` bytes fits."""
        if self._max_bytes is None or time.monotonic() < self._full_until:
            return False
        remaining = self._max_bytes - sum(size for _, size in clip_files(self._folder))
        self._until_look = max(size, remaining // _SHARE)
        if remaining < size:
            self._until_look, self._full_until = 0, time.monotonic() + _AGAIN_S
        return remaining >= size
