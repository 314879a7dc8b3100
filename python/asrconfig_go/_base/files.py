"""Atomic writes of files, paths that users pass, and the cache folder."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from .errors import InvalidArgumentError, NotFoundError, UnsupportedError
from .storage import from_storage


def user_path(given: str | os.PathLike[str], what: str) -> Path:
    """The path of the ``what`` ("dataset") that a user named, ``~`` expanded; there may be nothing.

    Whether something is there can be asked of it without another error: ``pathlib`` raises where a folder on the way is
    not ours to read or a text is no file's name. Here that is ``NotFoundError``, and an empty name, which would be the
    working folder, ``InvalidArgumentError``. ``StorageError`` is of a mount that does not answer.
    """
    if not isinstance(given, str | bytes | os.PathLike):
        raise InvalidArgumentError(f"{given!r} is no {what}", "pass a path")
    if not os.fsdecode(given):
        raise InvalidArgumentError(f"the name of the {what} is empty", 'the working folder is "."')
    try:
        path = Path(os.fsdecode(given)).expanduser()
        from_storage(path, path.stat)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, ValueError, RuntimeError) as error:  # ValueError: a zero byte; RuntimeError: nobody's home
        reason = getattr(error, "strerror", None) or error
        raise NotFoundError(f"cannot read the {what} {_shortened(given)}: {reason}", "check the path") from error
    return path


def utf8(path: Path) -> str:
    """A name as UTF-8 text; ``UnsupportedError`` for a name that is not, as in old archives."""
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise UnsupportedError(f"the name {str(path)!r} is not UTF-8", 'rename it, or go there and pass "."') from error
    return str(path)


def _shortened(name: str | os.PathLike[str]) -> str:
    text = os.fsdecode(name)
    return repr(text if len(text) <= 200 else f"{text[:150]}…{text[-40:]}")


def write_whole(path: Path, data: bytes, *, durable: bool = True, by_way_of: Path | None = None) -> None:
    """Write ``data`` to ``path`` through a temporary file, atomically: readers see the old file or the new one.

    The temporary file, whose name ends in ``.part``, can be in another folder, ``by_way_of``. A power cut keeps the
    promise only where it is ``durable``, which waits for the disk. The umask decides who may read the file, not
    for ``tempfile``, whose files are their owner's alone. A link stays one, and what it leads to is replaced; a
    terminal, a pipe or ``/dev/null`` is written to and stays what it is. Raises ``OSError`` as ``open`` does.
    """
    path = path.resolve() if path.is_symlink() and path.is_file() else path
    if _is_stream(path):
        path.write_bytes(data)
        return
    temporary = (by_way_of or path.parent) / f"{path.name}{os.urandom(4).hex()}.part"
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _is_stream(path: Path) -> bool:
    """Whether bytes go through it; ``OSError`` for what can be neither written to nor replaced."""
    try:
        mode = path.stat().st_mode
    except OSError:  # which writing tells better
        return False
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISCHR(mode) or stat.S_ISFIFO(mode)):
        raise OSError(errno.EINVAL, "Not a regular file", str(path))
    return stat.S_ISCHR(mode) or stat.S_ISFIFO(mode)


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
