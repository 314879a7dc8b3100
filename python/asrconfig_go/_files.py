"""Files that are there whole or not at all, and where cached ones are."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from ._errors import NotFoundError


def write_whole(path: Path, data: bytes, *, durable: bool = True, by_way_of: Path | None = None) -> None:
    """Write ``data`` to ``path`` through a temporary file beside it: there is the old file or the new one, ever.

    The temporary file, whose name ends in ``.part``, can be in another folder, ``by_way_of``. A power cut keeps the
    promise only where it is ``durable``, which waits for the disk. Raises ``OSError`` as ``open`` does.
    """
    handle, temporary = tempfile.mkstemp(dir=by_way_of or path.parent, prefix=path.name, suffix=".part")
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
