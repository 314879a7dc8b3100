"""Durations kept between scans: right after a kill, beside other scans, and with whatever is in the cache's folder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import wave
from pathlib import Path

import pytest

from asrconfig_go.data.scan import scan_audio

COUNT = 1_500
SCAN = """
import sys
from asrconfig_go import scan_audio
print(scan_audio(sys.argv[1], progress=False).profile.total_hours)
"""
WRITE_FOR_EVER = """
import pathlib, sys
from asrconfig_go import scan_audio
print("started", flush=True)
while True:
    scan_audio(sys.argv[1], progress=False)
    pathlib.Path(sys.argv[2]).unlink()  # so that the next scan has everything to write
"""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Clips of 1, 2, 3, … hundredths of a second, old enough to be cached."""
    folder = tmp_path_factory.mktemp("corpus")
    for i in range(COUNT):
        with wave.open(str(folder / f"{i:05d}.wav"), "wb") as file:
            file.setparams((1, 2, 8000, 0, "NONE", ""))
            file.writeframes(bytes(160 * (i + 1)))
    time.sleep(2.1)
    return folder


HOURS = COUNT * (COUNT + 1) / 2 / 100 / 3600


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ASRCONFIG_CACHE", str(tmp_path))
    return tmp_path / "durations" / "durations"


def scanning(corpus: Path) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", SCAN, str(corpus)], stdout=subprocess.PIPE, text=True)


def test_second_scan_is_the_same(corpus: Path, cache: Path) -> None:
    first = scan_audio(corpus, progress=False)
    assert cache.stat().st_size == 84 * COUNT
    again, plain = scan_audio(corpus, progress=False), scan_audio(corpus, cache=False, progress=False)
    assert first.clips == again.clips == plain.clips
    assert repr(first) == repr(again) == repr(plain)
    assert first.profile.total_hours == pytest.approx(HOURS)


def test_without_cache_nothing_is_written(corpus: Path, cache: Path) -> None:
    scan_audio(corpus, cache=False, progress=False)
    assert not cache.parent.exists()


def test_scans_at_the_same_time(corpus: Path, cache: Path) -> None:
    for _ in range(2):
        running = [scanning(corpus) for _ in range(3)]
        for process in running:
            out, _ = process.communicate(timeout=120)
            assert float(out) == pytest.approx(HOURS)
    assert scan_audio(corpus, progress=False).profile.total_hours == pytest.approx(HOURS)


def test_killed_scans_leave_a_right_cache(corpus: Path, cache: Path) -> None:
    """Scans are killed at many moments, often while they write; the next is right, and the cache is used again."""
    command = [sys.executable, "-c", WRITE_FOR_EVER, str(corpus), str(cache)]
    for moment in range(12):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "started\n"
            time.sleep(0.02 + 0.007 * moment)
            process.send_signal(signal.SIGKILL)
        assert process.returncode == -signal.SIGKILL
        result = scan_audio(corpus, progress=False)
        assert result.profile.total_hours == pytest.approx(HOURS)
        assert result.clips[-1].duration_s == COUNT / 100
        assert cache.stat().st_size >= 84 * COUNT
    assert [file.name for file in cache.parent.iterdir()] == ["durations"]


def test_cut_cache_is_read_on(corpus: Path, cache: Path) -> None:
    scan_audio(corpus, progress=False)
    length = cache.stat().st_size
    for size in (0, 10, 4096, length // 2, length - 1):
        with cache.open("r+b") as file:
            file.truncate(size)
        assert scan_audio(corpus, progress=False).profile.total_hours == pytest.approx(HOURS)
        assert cache.stat().st_size >= 84 * COUNT


def test_full_disk(corpus: Path, cache: Path) -> None:
    """A limit of the file size cuts a write short inside a slot, as a full disk does."""
    limited = f"import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))\n{SCAN}"
    for _ in range(2):
        out = subprocess.run(
            [sys.executable, "-c", limited, str(corpus)], stdout=subprocess.PIPE, text=True, timeout=120, check=True
        ).stdout
        assert float(out) == pytest.approx(HOURS)
        assert cache.stat().st_size == 5000
    for _ in range(2):
        assert scan_audio(corpus, progress=False).profile.total_hours == pytest.approx(HOURS)
    assert cache.stat().st_size == 84 * COUNT  # written anew without the broken slot


def test_folder_that_cannot_be_written(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ASRCONFIG_CACHE", str(tmp_path / "file"))
    assert scan_audio(corpus, progress=False).profile.sample_count == COUNT


def test_changed_file_is_measured_again(corpus: Path, cache: Path) -> None:
    """The last test of this file: for two seconds, the clip that it restores is too young to be kept."""
    scan_audio(corpus, progress=False)
    changed = corpus / "00000.wav"
    before = changed.read_bytes()
    status = changed.stat()
    changed.write_bytes(before[:24] + (4000).to_bytes(4, "little") + (8000).to_bytes(4, "little") + before[32:])
    os.utime(changed, ns=(status.st_atime_ns, status.st_mtime_ns))
    try:
        assert scan_audio(corpus, progress=False).clips[0].duration_s == 0.02
    finally:
        changed.write_bytes(before)
    assert scan_audio(corpus, progress=False).clips[0].duration_s == 0.01
