"""Storage that does not answer: a mounted drive or a network folder that was disconnected, a damaged disk."""

from __future__ import annotations

import errno
import logging
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from ..errors import StorageError

logger: logging.Logger = logging.getLogger("asrconfig_go")

PAUSES_S = (0.5, 1.0, 2.0, 4.0)
"""Between the attempts to read: mounted drives often come back within seconds."""
_NAMES = (
    "EIO", "ENOTCONN", "ESTALE", "ETIMEDOUT", "EREMOTEIO", "EHOSTDOWN", "EHOSTUNREACH", "ENETDOWN", "ENETUNREACH",
    "ENETRESET", "ECONNABORTED", "ECONNRESET", "ECONNREFUSED", "ESHUTDOWN",
)  # fmt: skip
_NUMBERS = frozenset(getattr(errno, name) for name in _NAMES if hasattr(errno, name))
_NOT_OF_SOCKETS = (
    errno.EIO,
    getattr(errno, "ENOTCONN", -1),
    getattr(errno, "ESTALE", -1),
    getattr(errno, "EREMOTEIO", -1),
)
# Where libraries and processes hand on only the text.
_TEXTS = (
    "input/output error", "transport endpoint is not connected", "stale file handle", "stale nfs file handle",
    "remote i/o error",
)  # fmt: skip
_HINT = (
    "mount it again, or copy the data to a local disk; if other files there can be read, the disk is damaged: leave "
    "this one out"
)

T = TypeVar("T")


def unanswered(error: BaseException | None, *, files_alone: bool = True) -> BaseException | None:
    """The exception in the chain of ``error`` that says that storage did not answer; None where none does.

    Sockets raise the same error numbers: they count only where nothing but files was read (``files_alone``).
    """
    return next((link for link in exception_chain(error) if _tells(link, files_alone)), None)


def _tells(error: BaseException, files_alone: bool) -> bool:
    if isinstance(error, OSError) and error.errno in _NUMBERS:
        return files_alone or bool(error.filename) or error.errno in _NOT_OF_SOCKETS
    if isinstance(error, StorageError):
        return True
    text = str(error).lower() if getattr(error, "errno", None) is None else ""
    return any(fragment in text for fragment in _TEXTS)


def from_storage(path: str | os.PathLike[str], read: Callable[[], T], *, files_alone: bool = True) -> T:
    """Call ``read``, which reads or writes ``path``, a few times with growing pauses until the storage answers.

    Raises ``StorageError`` where the storage does not answer, and the errors of ``read`` that are about the file.
    """
    for pause in (*PAUSES_S, None):
        try:
            return read()
        except StorageError:
            raise
        except Exception as error:
            reason = unanswered(error, files_alone=files_alone)
            if reason is None:
                raise
            if pause is None:
                raise storage_error(path, reason, len(PAUSES_S) + 1) from error
            text = reason_of(reason)
        logger.warning("%s does not answer (%s): trying again in %g s", os.fsdecode(path), text, pause)
        pause_for(pause)
    raise AssertionError  # the last attempt returns or raises


def pause_for(seconds: float) -> None:
    """Sleep; replaced in tests."""
    time.sleep(seconds)


def storage_error(path: str | os.PathLike[str], reason: BaseException, attempts: int = 1) -> StorageError:
    """The error for a file that could not be read or written for ``reason``; ``path`` may be empty if unknown."""
    name = os.fsdecode(getattr(reason, "filename", None) or path)
    where = f"the storage under {mount_of(name)}" if name else "the storage that the data is read from"
    tried = f" after {attempts} attempts" if attempts > 1 else ""
    file = f": {name}" * bool(name)
    return StorageError(f"{where} does not answer{tried}{file}: {reason_of(reason)}", _HINT)


def reason_of(error: BaseException) -> str:
    """The system's own message."""
    return str(getattr(error, "strerror", None) or (str(error).strip().splitlines() or [type(error).__name__])[-1])


def read_through(path: str | os.PathLike[str]) -> None:
    """Read a file to its end, so that storage which does not answer raises its error."""
    with Path(path).open("rb") as file:
        while file.read(1 << 20):
            pass


def mount_of(path: str | os.PathLike[str]) -> str:
    """The mount point of ``path``, found without touching it; its folder where that is unknown."""
    absolute = os.path.abspath(os.fsdecode(path))  # noqa: PTH100 (resolving links would touch it)
    try:
        lines = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return os.path.dirname(absolute)  # noqa: PTH120
    points = [_unescaped(line.split(" ")[1]) for line in lines if " " in line]
    above = [point for point in points if absolute == point or absolute.startswith(point.rstrip("/") + "/")]
    return max(above, key=len, default=os.path.dirname(absolute))  # noqa: PTH120


def _unescaped(point: str) -> str:
    for code, sign in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        point = point.replace(code, sign)
    return point


def exception_chain(error: BaseException | None) -> Iterator[BaseException]:
    """An exception and those that it was raised from."""
    visited: set[int] = set()
    while error is not None and id(error) not in visited:
        visited.add(id(error))
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
