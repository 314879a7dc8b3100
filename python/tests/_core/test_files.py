"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from asrconfig_go._core.files import read_object, write_whole
from asrconfig_go.errors import CorruptFileError, NotFoundError


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


def test_what_is_neither_file_nor_stream_is_not_replaced(tmp_path: Path) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "s"))
    with pytest.raises(OSError, match="Not a regular file"):
        write_whole(tmp_path / "s", b"x")
    assert (tmp_path / "s").is_socket()
    listener.close()
    with pytest.raises(IsADirectoryError):
        write_whole(tmp_path, b"x")


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
