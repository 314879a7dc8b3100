"""Files that are there whole or not at all, and where cached ones are."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from ._errors import NotFoundError


def write_whole(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Write ``data`` to ``path`` through a temporary file beside it: there is the old file or the new one, ever.

    A power cut keeps that promise only where it is ``durable``, which waits for the disk. Raises
    ``OSError`` as ``open`` does.
    """
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def save_whole(path: Path, data: bytes) -> None:
    """``write_whole`` for a file that the user named: ``NotFoundError`` where it cannot be written."""
    try:
        write_whole(path, data)
    except OSError as error:
        raise NotFoundError(
            f"cannot write {path}: {error}", "choose a folder that exists and can be written"
        ) from error


def cache_folder(part: str) -> Path:
    """Where this user's cached files of one kind are: ``ASRCONFIG_CACHE``, else the XDG cache folder."""
    override = os.environ.get("ASRCONFIG_CACHE")
    if override:
        return Path(override).expanduser() / part
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "asrconfig-go" / part
