"""One training at a time in a folder: the system's lock on a file, with its owner's name in it."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import time
import weakref
from pathlib import Path
from typing import IO, Any

from .._core.files import read_object
from ..errors import AsrConfigError, InvalidArgumentError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_NAME = "lock"
_OPEN: weakref.WeakSet[RunLock] = weakref.WeakSet()


class RunLock:
    """The lock of a run's folder, until ``release``, the end of this process, or that of the object.

    A process that ends in any way, by SIGKILL too, leaves the lock to the next one. On file systems without locks the
    owner's name decides: another one takes over where the owner ran on this host and is gone. Where nothing can be
    written there is no lock, and nothing that two trainings could spoil.
    """

    def __init__(self, folder: Path) -> None:
        """Raises ``InvalidArgumentError`` when another training is in the folder, this process's or another's."""
        self._path, self._file = folder / _NAME, None
        while True:
            file = self._opened()
            if file is None:
                return
            if not _locked(file, self._path):
                file.close()
                raise _in_use(self._path)
            if _is_at(file, self._path):
                break
            file.close()  # its owner removed it between opening and locking
        file.truncate()
        file.write(json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": time.time()}))
        file.flush()
        self._file = file
        _OPEN.add(self)

    def _opened(self) -> IO[str] | None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
            return os.fdopen(handle, "r+", encoding="utf-8")
        except OSError:
            return None

    def release(self) -> None:
        """Leave the folder to others."""
        if self._file is not None:
            _OPEN.discard(self)
            with contextlib.suppress(OSError):
                self._path.unlink()  # still locked: who opened it meanwhile looks again
            self._file.close()
            self._file = None


def _forget_all() -> None:
    """In a forked child, such as a loader's worker: it must not hold locks when its parent is gone."""
    for lock in list(_OPEN):
        if lock._file is not None:
            os.close(lock._file.fileno())
            lock._file = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


def _locked(file: IO[str], path: Path) -> bool:
    """Whether this process has locked the file."""
    if fcntl is not None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                return False
    return not _alive(_owner(path))  # the file system has no locks


def _alive(owner: dict[str, Any]) -> bool:
    """Whether the owner may be running; on another host it is assumed to."""
    pid, host = owner.get("pid"), owner.get("host")
    if type(pid) is not int or not 0 < pid < 1 << 31:
        return False  # nobody had the time to write a name
    if host != socket.gethostname():
        return True
    try:
        os.kill(pid, 0)
    except OSError as error:
        return not isinstance(error, ProcessLookupError)
    return True


def _is_at(file: IO[str], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except OSError:
        return False


def _owner(path: Path) -> dict[str, Any]:
    try:
        return read_object(path, "lock", "")
    except AsrConfigError:
        return {}


def _in_use(path: Path) -> InvalidArgumentError:
    pid, host, since = (_owner(path).get(name) for name in ("pid", "host", "since"))
    who = f"process {pid} on {host}" if pid is not None else "another process"
    begun = f", which began {_duration(time.time() - since)} ago" if isinstance(since, int | float) else ""
    return InvalidArgumentError(
        f"{path.parent.parent} is in use by {who}{begun}",
        f"wait for it, end it, or choose another output_dir; if there is no such process, remove {path}",
    )


def _duration(seconds: float) -> str:
    seconds = max(0.0, seconds)
    for unit, size in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
