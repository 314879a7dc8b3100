"""Files that are there whole or not at all; storage that does not answer: recognised, tried again, and named."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from asrconfig_go.__main__ import main
from asrconfig_go._core import files
from asrconfig_go._core.files import from_storage, mount_of, read_object, unanswered, user_path, write_whole
from asrconfig_go.errors import CorruptFileError, NotFoundError, StorageError


def test_the_umask_says_who_may_read(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_whole(tmp_path / "report.html", b"x")
    finally:
        os.umask(before)
    assert (tmp_path / "report.html").stat().st_mode & 0o777 == 0o640


def test_what_fails_leaves_the_old_file_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_whole(tmp_path / "plan.json", b"old")

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_whole(tmp_path / "plan.json", b"new")
    assert [file.name for file in tmp_path.iterdir()] == ["plan.json"]
    assert (tmp_path / "plan.json").read_bytes() == b"old"


def test_links_and_pipes_stay_what_they_are(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("plan.json")
    (tmp_path / "plan.json").write_bytes(b"old")
    write_whole(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "plan.json").read_bytes() == b"new"
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_whole(tmp_path / "pipe", b"plan")
    assert os.read(reader, 10) == b"plan" and (tmp_path / "pipe").is_fifo()
    os.close(reader)


def test_a_device_is_written_to(tmp_path: Path) -> None:
    """As root, putting a file in the place of /dev/null would break the machine."""
    if not Path("/dev/full").is_char_device():
        pytest.skip("this system has no /dev/full")
    (tmp_path / "full").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        write_whole(tmp_path / "full", b"x")
    assert Path("/dev/full").is_char_device()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", r"told\.json is empty"),
        (b" \n", r"told\.json is empty"),
        (b'{"a": 1', "ends in the middle, after 7 characters"),
        (b"{'a': 1}", "is not JSON"),
        (b'{"a": "\xff"}', "is not UTF-8"),
        (b"[" * 100_000 + b"]", "nests too deeply"),
        (b'{"a": ' + b"9" * 5000 + b"}", "is not JSON"),
        (b"[1]", "holds no plan"),
    ],
)
def test_files_that_hold_no_object(tmp_path: Path, text: bytes, message: str) -> None:
    path = tmp_path / "told.json"
    path.write_bytes(text)
    with pytest.raises(CorruptFileError, match=message) as caught:
        read_object(path, "plan", "make it again")
    assert caught.value.hint == "make it again"


@pytest.mark.parametrize(("name", "reason"), [("none.json", "No such file"), (".", "directory"), ("a\0b", "null")])
def test_files_that_cannot_be_opened(tmp_path: Path, name: str, reason: str) -> None:
    with pytest.raises(NotFoundError, match=f"cannot read the plan .*{reason}"):
        read_object(tmp_path / name, "plan", "make it again")


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "large.json").open("wb") as file:
        file.truncate((1 << 28) + 1)
    with pytest.raises(CorruptFileError, match="more than 256 MiB"):
        read_object(tmp_path / "large.json", "plan", "make it again")


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Those that were taken, in no time."""
    pauses: list[float] = []
    monkeypatch.setattr(files, "pause_for", pauses.append)
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
    assert pauses == list(files.PAUSES_S[:2])


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
    assert pauses == list(files.PAUSES_S), "nested reads try no more often"


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
    assert len(pauses) == len(files.PAUSES_S)


def test_a_command_names_it(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def examine() -> Any:
        raise OSError(errno.EIO, "Input/output error", "/drive/plan.json")

    monkeypatch.setattr("asrconfig_go.cli.doctor.examine", examine)
    assert main(["doctor"]) == 1
    assert "does not answer: /drive/plan.json: Input/output error" in capsys.readouterr().err
