"""Limits on the disk space of a cache."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from ..view.units import exact
from .clip_files import clip_files

_AGAIN_S = 60.0  # before a full folder is looked at again
_SHARE = 16  # of the room that is left may one process fill before it looks what others wrote


class Room:
    """What one process knows of a folder that several fill."""

    def __init__(self, folder: Path, max_bytes: int | None, keep_free_bytes: int) -> None:
        self._folder, self._most, self._kept_free = folder, max_bytes, keep_free_bytes
        self._until_look = 0
        """Bytes that may be written before the disk space is checked again."""
        self._full_until = float("-inf")
        self._stopped = ""

    def refusal(self, size: int) -> str:
        """Why a clip of ``size`` bytes is not to be written; empty when it may be."""
        if self._stopped:
            return self._stopped
        free = shutil.disk_usage(self._folder).free
        if free - size < self._kept_free:
            return f"the disk has {exact(free)} free, of which {exact(self._kept_free)} are kept for checkpoints"
        if self._most is not None and size > self._until_look and not self._look(size):
            return f"the clips take max_bytes = {exact(self._most)}"
        return ""

    def taken(self, size: int) -> None:
        """A file of ``size`` bytes was written."""
        self._until_look -= size

    def stop(self, why: str) -> str:
        """Refuse all that comes; gives ``why``."""
        self._stopped = why
        return why

    def _look(self, size: int) -> bool:
        """Measure the folder; whether there is room for a clip."""
        if self._most is None or time.monotonic() < self._full_until:
            return False
        left = self._most - sum(size for _, size in clip_files(self._folder))
        self._until_look = max(size, left // _SHARE)
        if left < size:
            self._until_look, self._full_until = 0, time.monotonic() + _AGAIN_S
        return left >= size
