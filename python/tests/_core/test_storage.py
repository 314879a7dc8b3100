"""Storage that does not answer: recognised, tried again, and named."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from asrconfig_go.__main__ import main
from asrconfig_go._core import storage
from asrconfig_go._core.files import user_path
from asrconfig_go._core.storage import from_storage, mount_of, unanswered
from asrconfig_go.errors import CorruptFileError, StorageError


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Those that were taken, in no time."""
    pauses: list[float] = []
    monkeypatch.setattr(storage, "pause_for", pauses.append)
    return pauses


def failing(times: int, error: Exception, result: Any = "read") -> Callable[[], Any]:
    remaining = [times]

    def read() -> Any:
        if remaining[0]:
            remaining[0] -= 1
            raise error
        return result

    return read


LOST = [
    OSError(errno.EIO, "Input/output error"),
    OSError(errno.ENOTCONN, "Transport endpoint is not connected", "/drive/a.wav"),
    OSError(errno.ESTALE, "Stale file handle"),
    TimeoutError(errno.ETIMEDOUT, "Connection timed out", "/drive/a.wav"),
    RuntimeError("Caught OSError in DataLoader worker process 0.\nOSError: [Errno 5] Input/output error"),
]


@pytest.mark.parametrize("error", LOST)
def test_storage_that_comes_back_is_read_on(error: Exception, pauses: list[float]) -> None:
    assert from_storage("/drive/a.wav", failing(2, error)) == "read"
    assert pauses == list(storage.PAUSES_S[:2])


@pytest.mark.parametrize("error", LOST)
def test_storage_that_does_not_answer_is_named(error: Exception, pauses: list[float]) -> None:
    def behind() -> Any:
        try:
            return failing(99, error)()
        except Exception as cause:
            raise CorruptFileError("cannot decode a.wav") from cause

    with pytest.raises(StorageError, match=r"does not answer after 5 attempts: /drive/a\.wav: ") as caught:
        from_storage("/drive/a.wav", lambda: from_storage("/drive/a.wav", behind))
    assert "local disk" in caught.value.hint
    assert pauses == list(storage.PAUSES_S), "nested reads try no more often"


@pytest.mark.parametrize(
    "error", [FileNotFoundError(2, "No such file"), PermissionError(13, "denied"), ValueError("x")]
)
def test_other_errors_are_raised_at_once(error: Exception, pauses: list[float]) -> None:
    with pytest.raises(type(error)):
        from_storage("a.wav", failing(1, error))
    assert pauses == []


def test_a_sockets_error_is_no_files() -> None:
    reset = ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
    assert unanswered(reset) is reset
    assert unanswered(reset, files_alone=False) is None
    assert unanswered(OSError(errno.EIO, "Input/output error"), files_alone=False) is not None


def test_where_a_file_is_mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = "drive /content/My\\040Drive fuse rw 0 0\nroot / ext4 rw 0 0\nc /content ext4 rw 0 0\n"
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: table)
    assert mount_of("/content/My Drive/a.wav") == "/content/My Drive"
    assert mount_of("/content/My Drives/a.wav") == "/content"
    assert mount_of("/data/a.wav") == "/"


def test_a_path_that_a_user_names(monkeypatch: pytest.MonkeyPatch, pauses: list[float]) -> None:
    def stat(self: Path, **_: Any) -> Any:
        raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN), str(self))

    monkeypatch.setattr(Path, "stat", stat)
    with pytest.raises(StorageError, match="does not answer after 5 attempts: /drive/clips: "):
        user_path("/drive/clips", "dataset")
    assert len(pauses) == len(storage.PAUSES_S)


def test_a_command_names_it(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def examine() -> Any:
        raise OSError(errno.EIO, "Input/output error", "/drive/plan.json")

    monkeypatch.setattr("asrconfig_go.cli.doctor.examine", examine)
    assert main(["doctor"]) == 1
    assert "does not answer: /drive/plan.json: Input/output error" in capsys.readouterr().err
