"""Traces kept between sessions: recording one takes seconds, reading one milliseconds.

The key of a trace is everything that determines it: the model's structure, the settings, and the versions of the code.
A folder that cannot be written, or a missing or broken file, only costs the time to record again.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import time
from pathlib import Path

from .._base.files import cache_folder, write_whole

MAX_BYTES = 512 * 2**20
_STALE_S = 3600  # a temporary file this old belongs to a process that died
_CODE = ("torch", "transformers", "accelerate", "peft", "bitsandbytes")


@functools.cache
def code_versions() -> dict[str, str]:
    """Versions of the installed packages whose code decides what a training step allocates, and of the recorder."""
    from importlib import metadata  # costs more than the rest of this package's import

    versions = {}
    for name in _CODE:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return {**versions, "recorder": code_digest("trace")}


@functools.cache
def code_digest(*folders: str) -> str:
    """A digest of this package's code in these folders, which changes with an upgrade or an edit."""
    digest = hashlib.sha256()
    for folder in folders:
        for file in sorted((Path(__file__).parent.parent / folder).glob("*.py")):
            digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


class TraceCache:
    """The trace files of one folder, at most ``max_bytes`` in total; the least recently used are removed first."""

    def __init__(self, folder: Path | None = None, max_bytes: int = MAX_BYTES) -> None:
        self.folder = cache_folder("traces") if folder is None else folder
        self.max_bytes = max_bytes

    def find(self, key: str) -> Path | None:
        """The file of a trace, marked as used now; None if there is none."""
        path = self._path(key)
        try:
            os.utime(path)
        except OSError:
            return path if os.access(path, os.R_OK) else None  # a folder that may be read but not written
        return path

    def store(self, key: str, data: bytes) -> Path | None:
        """Keep a trace; returns its file, None where nothing can be written, or when it is larger than the cache."""
        if len(data) > self.max_bytes:
            return None
        path = self._path(key)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_whole(path, data, durable=False)  # a torn file is found out when it is opened
        except OSError:
            return None
        self._shrink(path)
        return path

    def discard(self, key: str) -> None:
        """Remove a broken trace."""
        with contextlib.suppress(OSError):
            self._path(key).unlink()

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.trace"

    def _shrink(self, stored: Path) -> None:
        """Remove the least recently used files until the others fit. Other processes may be doing the same."""
        files = []
        for path in self.folder.iterdir():
            with contextlib.suppress(OSError):
                status = path.stat()
                if path.suffix == ".trace":
                    files.append((status.st_mtime_ns, status.st_size, path))
                elif path.suffix == ".part" and status.st_mtime < time.time() - _STALE_S:
                    path.unlink()
        total = sum(size for _, size, _ in files)
        for _, size, path in sorted(files):
            if total <= self.max_bytes:
                return
            if path != stored:
                with contextlib.suppress(OSError):
                    path.unlink()
                total -= size
