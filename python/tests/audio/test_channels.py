"""Recordings whose channels cancel each other, and clips in which nothing is heard."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asrconfig_go.audio import DecodedCache, ResampledCache, load_audio
from asrconfig_go.audio.decoding import is_silent, load_clip
from asrconfig_go.recipe import load_speech

soundfile = pytest.importorskip("soundfile")
datasets = pytest.importorskip("datasets")

RATE = 16_000


def sound(seed: int = 0, seconds: float = 0.5) -> Any:
    return np.random.default_rng(seed).normal(0, 0.1, int(RATE * seconds)).astype("float32")


def written(path: Path, channels: list[Any], **options: Any) -> Path:
    soundfile.write(path, np.stack(channels, 1), RATE, **options)
    return path


HEALTHY = {
    "alike": [sound(), sound()],
    "unlike": [sound(0), sound(1)],
    "one silent": [sound(), 0 * sound()],
    "one of eight": [sound(), *[0 * sound()] * 7],
    "partly inverted": [sound(0), -0.7 * sound(0)],
    "all silent": [0 * sound(), 0 * sound()],
}


@pytest.mark.parametrize("name", HEALTHY)
def test_other_recordings_are_mixed_as_ever(tmp_path: Path, name: str) -> None:
    path = written(tmp_path / "a.wav", HEALTHY[name], subtype="FLOAT")
    read = soundfile.read(path, dtype="float32")[0]
    for source, axis in ((path, 1), (path.read_bytes(), 1), (read, 1), (np.ascontiguousarray(read.T), 0)):
        array = read if axis else np.ascontiguousarray(read.T)
        clip = load_clip(source)
        assert not clip.one_channel
        assert np.array_equal(clip.samples, array.mean(axis))


CANCELLING = {
    "inverted": ([sound(), -sound()], 0),
    "nearly": ([sound(), -0.95 * sound()], 0),
    "the second louder": ([-0.9 * sound(), sound()], 1),
    "two pairs": ([sound(0), sound(1), -sound(0), -sound(1)], 0),
}


@pytest.mark.parametrize("name", CANCELLING)
def test_one_channel_where_all_cancel(tmp_path: Path, name: str) -> None:
    channels, loudest = CANCELLING[name]
    path = written(tmp_path / "a.wav", channels, subtype="FLOAT")
    data = np.stack(channels, 1)
    sources: list[Any] = [path, path.read_bytes(), io.BytesIO(path.read_bytes()).getbuffer(), data, data.T,
                          {"array": data, "sampling_rate": RATE}]  # fmt: skip
    for source in sources:
        clip = load_clip(source)
        assert clip.one_channel
        assert np.array_equal(clip.samples, channels[loudest])
    part = load_audio(f"{path}#t=0.1,0.3")
    assert np.array_equal(part, channels[loudest][1600:4800])


def test_long_files_take_one_channel_throughout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asrconfig_go.audio.decoding._BLOCK", 1000)
    quiet = np.concatenate([0 * sound()[:3000], sound()[3000:]])
    path = written(tmp_path / "a.flac", [quiet, -quiet])
    assert np.array_equal(load_audio(path), soundfile.read(path, dtype="float32")[0][:, 0])


def test_silence() -> None:
    assert is_silent(np.zeros(10, np.float32)) and is_silent(np.full(10, -6e-5, np.float32))
    assert not is_silent(np.array([0, 2e-4], np.float32)) and not is_silent(np.array([], np.float32))


def test_loading_speech_names_the_rows(tmp_path: Path) -> None:
    channels = [[sound(0)], [sound(1), -sound(1)], [0 * sound()], [sound(2), sound(3)], [0 * sound(), 0 * sound()]]
    paths = [str(written(tmp_path / f"{i}.wav", clip)) for i, clip in enumerate(channels)]
    rows = datasets.Dataset.from_dict({"audio": paths, "text": list("abcde")})
    data = load_speech(rows, evaluation_share=0, progress=False)
    assert list(data.train["text"]) == list("abcde"), "they are named, not left out"
    assert data.notes[:2] == (
        f"nothing is heard in 2 clips, which teach nothing: leave out row 2 ({paths[2]}), row 4 ({paths[4]})",
        f"one channel is taken of 1 clip whose channels cancel each other: row 1 ({paths[1]})",
    )
    unchecked = load_speech(rows, evaluation_share=0, check_audio=False, progress=False)
    assert unchecked.notes == ("no clips to evaluate with",)


@pytest.mark.parametrize("kind", [DecodedCache, ResampledCache])
def test_filling_a_cache_counts_silent_clips(tmp_path: Path, kind: Any) -> None:
    paths = [written(tmp_path / "a.wav", [sound()]), written(tmp_path / "b.wav", [0 * sound()])]
    for path in paths:
        os.utime(path, (0, 0))  # a file that was just written may change again, and is not kept
    cache = kind(tmp_path / "cache") if kind is ResampledCache else kind(1 << 20)
    filled = cache.prepare(paths, progress=False)
    assert filled.silent == (str(paths[1]),)
    assert str(filled) == f"2 clips prepared, 1 silent ({paths[1]})"
    assert cache.prepare(paths, progress=False).silent == ()
