"""Clips on storage that does not answer are tried again, and never counted as bad."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from typing import Any

import pytest

from asrconfig_go._core import files
from asrconfig_go.audio import DecodedCache, load_audio
from asrconfig_go.data.source import CLIPS
from asrconfig_go.errors import CorruptFileError, StorageError

soundfile = pytest.importorskip("soundfile")


class Drive:
    """Files under ``folder`` fail as often as told: libsndfile without a reason, Python's ``open`` with its number."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.left, self.pauses = folder, 0, list[float]()
        decode, read = soundfile.SoundFile, Path.open

        def decoded(file: Any, *args: Any, **options: Any) -> Any:
            if self._fails(file):
                raise soundfile.LibsndfileError(2, prefix="Error opening: ")
            return decode(file, *args, **options)

        def opened(path: Path, *args: Any, **options: Any) -> Any:
            if self._fails(path):
                raise OSError(errno.EIO, "Input/output error", str(path))
            return read(path, *args, **options)

        monkeypatch.setattr(soundfile, "SoundFile", decoded)
        monkeypatch.setattr(Path, "open", opened)
        monkeypatch.setattr(files, "pause_for", self.pauses.append)

    def _fails(self, file: Any) -> bool:
        fails = self.left > 0 and str(file).startswith(str(self.folder))
        self.left -= fails
        return fails


@pytest.fixture
def drive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Drive:
    for number in range(3):
        shutil.copy(CLIPS / f"test-{number:03}.mp3", tmp_path / f"{number}.mp3")
    return Drive(tmp_path, monkeypatch)


@pytest.mark.parametrize("failures", [1, 2, 4])
def test_a_clip_is_read_once_its_storage_answers(drive: Drive, failures: int) -> None:
    wanted = load_audio(drive.folder / "0.mp3")
    drive.left = failures
    assert (load_audio(drive.folder / "0.mp3") == wanted).all()
    assert drive.pauses == list(files.PAUSES_S[: failures // 2])


def test_a_clip_whose_storage_does_not_answer_is_not_called_corrupt(drive: Drive) -> None:
    drive.left = 99
    with pytest.raises(StorageError, match=r"does not answer after 5 attempts: .*0\.mp3: Input/output error"):
        load_audio(drive.folder / "0.mp3")


def test_a_bad_clip_is_bad_at_once(drive: Drive) -> None:
    (drive.folder / "bad.mp3").write_bytes(b"no audio")
    with pytest.raises(CorruptFileError, match="cannot decode"):
        load_audio(drive.folder / "bad.mp3")
    assert drive.pauses == []


def test_filling_a_cache_ends_instead_of_counting_bad_clips(drive: Drive) -> None:
    clips = sorted(drive.folder.iterdir())
    drive.left = 10**9
    with pytest.raises(StorageError):
        DecodedCache(1 << 20).prepare(clips, progress=False)
    drive.left = 0
    assert DecodedCache(1 << 20).prepare(clips, progress=False).bad == 0


def test_loading_speech_ends_instead_of_leaving_clips_out(drive: Drive, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("datasets")
    from asrconfig_go.recipe import load_speech

    rows = "".join(f"{number}.mp3,one\n" for number in range(3))
    (drive.folder / "metadata.csv").write_text(f"file_name,text\n{rows}")
    assert len(load_speech(drive.folder, evaluation_share=0.0, progress=False).train) == 3
    drive.left = 10**9
    with pytest.raises(StorageError, match="does not answer"):
        load_speech(drive.folder, evaluation_share=0.0, progress=False)
