"""Files that a user names: atomic writes, JSON that may be missing or damaged, the cache folder.

Storage may not answer: a mounted drive or a network folder that was disconnected, a damaged disk.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import CorruptFileError, InvalidArgumentError, NotFoundError, StorageError, UnsupportedError
from .output import logger, shortened

if TYPE_CHECKING:
    from transformers import PretrainedConfig

_LARGEST = 1 << 28  # bytes; what this package writes stays far under it
PAUSES_S = (0.5, 1.0, 2.0, 4.0)
"""Between the attempts to read: mounted drives often come back within seconds."""
_NAMES = (
    "EIO", "ENOTCONN", "ESTALE", "ETIMEDOUT", "EREMOTEIO", "EHOSTDOWN", "EHOSTUNREACH", "ENETDOWN", "ENETUNREACH",
    "ENETRESET", "ECONNABORTED", "ECONNRESET", "ECONNREFUSED", "ESHUTDOWN",
)  # fmt: skip
_NUMBERS = frozenset(getattr(errno, name) for name in _NAMES if hasattr(errno, name))
_NOT_OF_SOCKETS = tuple(getattr(errno, name, -1) for name in ("EIO", "ENOTCONN", "ESTALE", "EREMOTEIO"))
# Where libraries and processes hand on only the text.
_TEXTS = (
    "input/output error", "transport endpoint is not connected", "stale file handle", "stale nfs file handle",
    "remote i/o error",
)  # fmt: skip
_NO_ANSWER = (
    "mount it again, or copy the data to a local disk; if other files there can be read, the disk is damaged: leave "
    "this one out"
)

T = TypeVar("T")


def user_path(name: str | os.PathLike[str], kind: str) -> Path:
    """The path of the ``kind`` ("dataset") that a user named, with ``~`` expanded; it need not exist.

    Raises ``NotFoundError`` where ``pathlib`` could not even look (no permission, no valid file name),
    ``InvalidArgumentError`` for an empty name, and ``StorageError`` for a mount that does not answer.
    """
    if not isinstance(name, str | bytes | os.PathLike):
        raise InvalidArgumentError(f"{kind} = {name!r} is not a path", "pass a path")
    if not os.fsdecode(name):
        raise InvalidArgumentError(f"the name of the {kind} is empty", 'the working folder is "."')
    try:
        path = Path(os.fsdecode(name)).expanduser()
        from_storage(path, path.stat)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, ValueError, RuntimeError) as error:  # ValueError: a zero byte; RuntimeError: nobody's home
        reason = getattr(error, "strerror", None) or error
        text = shortened(os.fsdecode(name))
        raise NotFoundError(f"cannot read the {kind} {text!r}: {reason}", "check the path") from error
    return path


def utf8(path: Path) -> str:
    """A name as UTF-8 text; ``UnsupportedError`` for a name that is not, as in old archives."""
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise UnsupportedError(f"the name {str(path)!r} is not UTF-8", 'rename it, or go there and pass "."') from error
    return str(path)


def write_whole(path: Path, data: bytes, *, durable: bool = True, by_way_of: Path | None = None) -> None:
    """Write ``data`` to ``path`` atomically: readers see the old file or the new one.

    The temporary file, whose name ends in ``.part``, can be in another folder, ``by_way_of``. Only a ``durable`` write,
    which waits for the disk, survives a power cut. The umask decides who may read the file, as ``tempfile`` would not
    let it. The target of a link is replaced; terminals, pipes and ``/dev/null`` are written to. Raises ``OSError``.
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
    """Whether ``path`` is a pipe or a device."""
    try:
        mode = path.stat().st_mode
    except OSError:  # the write below reports it better
        return False
    return stat.S_ISCHR(mode) or stat.S_ISFIFO(mode)


def save_whole(path: Path, data: bytes) -> None:
    """``write_whole`` for a file that the user named: ``NotFoundError`` where it cannot be written."""
    try:
        write_whole(path, data)
    except OSError as error:
        raise NotFoundError(
            f"cannot write {path}: {reason_of(error)}", "choose a folder that exists and can be written"
        ) from error


def cache_folder(part: str) -> Path:
    """The folder of this user's cached files of one kind: in ``ASRCONFIG_CACHE``, else in the XDG cache folder."""
    override = os.environ.get("ASRCONFIG_CACHE")
    if override:
        return Path(override).expanduser() / part
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "asrconfig-go" / part


def fingerprint(*parts: object) -> str:
    """32 hexadecimal digits that change with any of the parts (JSON values)."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def read_json(path: str | os.PathLike[str], kind: str, hint: str) -> Any:
    """Parse a JSON file; ``kind`` ("run log") and ``hint`` are for the messages.

    Raises ``NotFoundError`` for a file that is missing or cannot be opened, ``CorruptFileError`` for one that is larger
    than 256 MiB, empty, truncated, not UTF-8 or not JSON.
    """
    path = user_path(path, kind)

    def first_bytes() -> bytes:
        with path.open("rb") as file:
            return file.read(_LARGEST + 1)

    try:
        data = from_storage(path, first_bytes)
    except OSError as error:
        raise NotFoundError(f"cannot read the {kind} {str(path)!r}: {error.strerror}", hint) from error
    if len(data) > _LARGEST:
        raise CorruptFileError(f"{path} has more than {_LARGEST >> 20} MiB: it is not what its name says", hint)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise CorruptFileError(f"{path} is not UTF-8: {error}", hint) from error
    if not text.strip():
        raise CorruptFileError(f"{path} is empty", hint)
    try:
        return json.loads(text)
    except RecursionError as error:
        raise CorruptFileError(f"{path} nests too deeply", hint) from error
    except ValueError as error:  # also of numbers with too many digits
        cut = not text.rstrip().endswith(("}", "]"))
        problem = f"ends in the middle, after {len(text)} characters" if cut else f"is not JSON: {error}"
        raise CorruptFileError(f"{path} {problem}", hint) from error


def read_object(path: str | os.PathLike[str], kind: str, hint: str) -> dict[str, Any]:
    """``read_json`` of a file that must hold an object; ``CorruptFileError`` for anything else."""
    content = read_json(path, kind, hint)
    if not isinstance(content, dict):
        raise CorruptFileError(f"{path} holds no {kind}", hint)
    return content


def config_values(config: PretrainedConfig) -> dict[str, Any]:
    """The content of ``config.json`` for a transformers configuration.

    Raises ``InvalidArgumentError`` for an entry that JSON cannot hold, such as a NumPy number.
    """
    try:
        values: dict[str, Any] = json.loads(config.to_json_string(use_diff=False))
    except TypeError as error:
        of = type(config).__name__
        wrong = [(name, value) for name, value in vars(config).items() if not _is_json(value)]
        named = ", ".join(f"{name} = {value!r} ({type(value).__name__})"[:100] for name, value in wrong[:3]) or error
        raise InvalidArgumentError(
            f"the model's {of} cannot be saved as JSON: {named}", "set it to a number, a text or a list of them"
        ) from error
    return values


def _is_json(value: object) -> bool:
    if hasattr(value, "to_dict") or type(value).__module__.partition(".")[0] == "torch":  # configs, and torch.dtype
        return True
    try:
        json.dumps(value)
    except TypeError:
        return False
    return True


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
        name = os.fsdecode(path) or "the storage of the data"
        logger.warning("%s does not answer (%s): trying again in %g s", name, text, pause)
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
    return StorageError(f"{where} does not answer{tried}{file}: {reason_of(reason)}", _NO_ANSWER)


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
