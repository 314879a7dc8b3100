"""The record of a run next to its checkpoints: batch, limits, random numbers, arguments, model; and its lock.

It is a folder, ``.asrconfig``, in the Trainer's ``output_dir``. Its files are there whole or not at all, whenever the
process is killed:

- ``run.json``: the ``RunRecord``, written by the processes that save checkpoints;
- ``begin.json``, ``epoch-<global step>.json``: the CPU's random number generators before the first step and at the
  begin of each epoch, with ``-rank<n>`` of any process but the first. Orders of samples are drawn from them;
- ``lock``: locked by the one training that uses the folder, whose name is in it.
"""

from __future__ import annotations

import errno
import json
import os
import re
import socket
import time
import weakref
from collections.abc import Collection
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from .._core.files import read_object, write_whole
from .._core.output import logger
from .._core.records import from_file
from ..errors import AsrConfigError, CorruptFileError, InvalidArgumentError, VersionMismatchError
from ..guard.training_report import BadBatch, GuardEvent, Restart

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from transformers import Trainer

_FOLDER = ".asrconfig"
_SCHEMA = 6
_BEGIN = "begin"
_EPOCH = re.compile(r"epoch-(\d{1,18})(-rank\d+)?")
_HINT = "remove that folder to continue without the run's record"
_LOCK = "lock"
_OPEN: weakref.WeakSet[RunLock] = weakref.WeakSet()


@dataclass(frozen=True)
class ModelRecord:
    """A model without its weights; ``shapes`` is a digest of its parameters' names and shapes."""

    class_name: str
    vocabulary: int | None
    parameters: int
    trainable: int
    shapes: str

    def __str__(self) -> str:
        tokens = f", {self.vocabulary} tokens" if self.vocabulary is not None else ""
        return f"{self.class_name}{tokens}, {self.parameters:,} parameters, {self.trainable:,} of them trained"


@dataclass
class RunRecord:
    """One run, over all its processes.

    ``batch`` is (samples a device and batch, accumulation, devices); ``gpu`` is (name, bytes), None on a CPU.
    ``limits`` are those of the guard by place, (samples, values); ``micro_batch`` is what a device should take at most
    where the guard cannot split batches; ``foreign`` names checkpoints in the folder that are not of this run;
    ``settings`` and ``model`` are what decides the result besides the data.
    """

    batch: tuple[int, int, int]
    processes: int
    samples: int | None
    gpu: tuple[str, int] | None
    max_steps: int = 0
    limits: dict[str, tuple[int | None, int | None]] = field(default_factory=dict)
    micro_batch: int | None = None
    events: list[GuardEvent] = field(default_factory=list)
    restarts: list[Restart] = field(default_factory=list)
    bad_batches: list[BadBatch] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    model: ModelRecord | None = None

    @property
    def effective_batch(self) -> int:
        """Samples of an optimizer step."""
        size, accumulation, devices = self.batch
        return size * accumulation * devices

    def to_json(self) -> bytes:
        """The record in the form that ``from_file`` reads."""
        return json.dumps({"schema": _SCHEMA, **asdict(self)}, indent=1).encode()

    @classmethod
    def from_file(cls, path: Path) -> RunRecord:
        """What ``to_json`` returned. Raises ``CorruptFileError`` and ``VersionMismatchError``."""
        document = read_object(path, "run's record", _HINT)
        if document.pop("schema", None) != _SCHEMA:
            raise VersionMismatchError(f"{path} was written by another version", _HINT)
        return from_file(cls, document, path, _HINT)


class RunFolder:
    """The record's files of one process. Those that cannot be written are missed only when the run is resumed."""

    def __init__(self, output: Path, rank: int = 0) -> None:
        self.path: Path = output / _FOLDER
        self._suffix = f"-rank{rank}" if rank else ""
        self._has_warned = False

    def read(self) -> RunRecord | None:
        """The record, None where there is none."""
        path = self.path / "run.json"
        return RunRecord.from_file(path) if path.is_file() else None

    def write(self, record: RunRecord) -> None:
        """Overwrite the record."""
        self._write("run.json", record.to_json())

    def read_states(self) -> tuple[dict[str, Any] | None, dict[int, dict[str, Any]]]:
        """The random numbers before the first step, and by the global step at which an epoch begins.

        Those of the first process where this one has none: there were fewer, and orders are common to all.
        """
        begin = self._state(_BEGIN)
        named = (_EPOCH.fullmatch(path.stem) for path in self.path.glob("epoch-*.json"))
        steps = {int(name[1]) for name in named if name}
        epochs = {step: self._state(f"epoch-{step}") for step in steps}
        return begin, {step: state for step, state in epochs.items() if state is not None}

    def write_state(self, state: dict[str, Any], step: int | None = None) -> None:
        """Keep the random numbers of an epoch that begins, or those before the first step."""
        from ..guard.saved_batch import plain_state

        name = _BEGIN if step is None else f"epoch-{step}"
        document = {**plain_state(state), "torch": bytes(state["torch"].tolist()).hex()}
        self._write(f"{name}{self._suffix}.json", json.dumps(document).encode())

    def drop_epochs(self, needed: Collection[int] = ()) -> None:
        """Remove the random numbers of this process at other epochs than those ``needed``."""
        for path in self.path.glob("epoch-*.json"):
            name = _EPOCH.fullmatch(path.stem)
            if name and int(name[1]) not in needed and (name[2] or "") == self._suffix:
                path.unlink(missing_ok=True)

    def clear(self) -> None:
        """Remove the record of an earlier run."""
        self.drop_leftovers()
        for path in self.path.glob("*.json"):
            path.unlink(missing_ok=True)

    def drop_leftovers(self) -> None:
        """Remove what killed processes were writing."""
        for path in self.path.glob("*.part"):
            path.unlink(missing_ok=True)

    def _state(self, name: str) -> dict[str, Any] | None:
        for suffix in dict.fromkeys((self._suffix, "")):
            path = self.path / f"{name}{suffix}.json"
            if path.is_file():
                return _state_from_file(path)
        return None

    def _write(self, name: str, data: bytes) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            write_whole(self.path / name, data)
        except OSError as error:
            if not self._has_warned:
                logger.warning("cannot keep a record of the run (%s): it cannot be resumed exactly", error)
            self._has_warned = True


def folder_of(trainer: Trainer, output: str | os.PathLike[str] | None = None) -> RunFolder:
    """The record's folder of a Trainer's process, in ``output`` if that is not the Trainer's own."""
    return RunFolder(Path(output or trainer.args.output_dir), trainer.args.process_index)


def _state_from_file(path: Path) -> dict[str, Any]:
    """The state for ``set_cpu_state``."""
    import torch

    from ..guard.saved_batch import state_of_plain

    document = read_object(path, "state of random numbers", _HINT)
    try:
        generator = torch.tensor(list(bytes.fromhex(document["torch"])), dtype=torch.uint8)
        return state_of_plain({**document, "torch": generator})
    except (ValueError, LookupError, TypeError) as error:
        raise CorruptFileError(f"{path} holds no state of random numbers: {error!r}", _HINT) from error


class RunLock:
    """The lock of a run's folder, until ``release``, the end of this process, or that of the object.

    A process that ends in any way, by SIGKILL too, leaves the lock to the next one. On file systems without locks the
    owner's name decides: another one takes over where the owner ran on this host and is gone. Where nothing can be
    written there is no lock, and nothing that two trainings could spoil.
    """

    def __init__(self, folder: Path) -> None:
        """Raises ``InvalidArgumentError`` when another training is in the folder, this process's or another's."""
        path, self._file = folder / _LOCK, None
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), "r+", encoding="utf-8")
        except OSError:
            return
        if not _locked(file, path):
            file.close()
            raise _in_use(path)
        file.truncate()
        file.write(json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": time.time()}))
        file.flush()
        self._file = file
        _OPEN.add(self)

    def release(self) -> None:
        """Leave the folder to others; the file stays, without a name."""
        if self._file is not None:
            _OPEN.discard(self)
            self._file.truncate(0)
            self._file.close()
            self._file = None


def _forget_all() -> None:
    """Called in a forked child, such as a loader's worker: it must not hold locks when its parent is gone."""
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


def _owner(path: Path) -> dict[str, Any]:
    try:
        return read_object(path, "lock", "")
    except AsrConfigError:
        return {}


def _in_use(path: Path) -> InvalidArgumentError:
    pid, host, since = (_owner(path).get(name) for name in ("pid", "host", "since"))
    who = f"process {pid} on {host}" if pid is not None else "another process"
    begun = f", which began {datetime.fromtimestamp(since):%Y-%m-%d %H:%M}" if isinstance(since, int | float) else ""
    return InvalidArgumentError(
        f"{path.parent.parent} is in use by {who}{begun}",
        f"wait for it, end it, or choose another output_dir; if there is no such process, remove {path}",
    )
