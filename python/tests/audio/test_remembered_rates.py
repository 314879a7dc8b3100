"""Loader rates of the last day are taken again, and of nothing else."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

np = pytest.importorskip("numpy")
soundfile = pytest.importorskip("soundfile")

import asrconfig_go as ac
from asrconfig_go.audio import loader_rate
from asrconfig_go.audio.loader_rate import Measured
from asrconfig_go.data.source import open_source


class Processor:
    """One that says what it does."""

    def __init__(self, text: str) -> None:
        self.text = text

    def to_json_string(self) -> str:
        return self.text

    def __call__(self, audio: Any, sampling_rate: int) -> Any:
        return audio


class Silent:
    """One that does not."""

    def __call__(self, audio: Any, sampling_rate: int) -> Any:
        return audio


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ASRCONFIG_CACHE", str(tmp_path / "cache"))
    clips = tmp_path / "clips"
    clips.mkdir()
    for n in range(3):
        soundfile.write(clips / f"{n}.wav", np.zeros(16_000, "float32"), 16_000)
    return clips


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The datasets that were really measured."""
    calls: list[Any] = []
    measure = loader_rate.measure_loader

    def noted(dataset: Any, **options: Any) -> Any:
        calls.append(dataset)
        return measure(dataset, **options)

    monkeypatch.setattr(loader_rate, "measure_loader", noted)
    return calls


def rate(folder: Any, processor: Any = None, remember: bool = True, seconds: float = 0.05) -> Any:
    manager = ac.ASRConfigManager(gpu="T4")
    manager.profile_dataset(folder, progress=False)
    return manager.measure_loader(folder, processor=processor, remember=remember, seconds=seconds)


def test_the_same_clips_are_read_once(folder: Path, measured: list[Any]) -> None:
    first = rate(folder)
    assert rate(folder) == first and len(measured) == 1
    rate(folder, remember=False)
    assert len(measured) == 2, "whoever asks for a measurement gets one"
    rate(folder, seconds=0.06)
    assert len(measured) == 3
    soundfile.write(folder / "3.wav", np.zeros(32_000, "float32"), 16_000)
    rate(folder)
    assert len(measured) == 4, "another file"


def test_processors_are_told_apart(folder: Path, measured: list[Any]) -> None:
    for processor, runs in (
        (Processor("a"), 1),
        (Processor("a"), 1),
        (Processor("b"), 2),
        (Silent(), 3),
        (Silent(), 4),
    ):
        rate(folder, processor)
        assert len(measured) == runs


def test_rows_of_the_package_datasets_are_read_once(folder: Path, measured: list[Any]) -> None:
    datasets = pytest.importorskip("datasets")
    files = {"audio": [str(path) for path in sorted(folder.iterdir())]}
    rows = datasets.Dataset.from_dict(files).cast_column("audio", datasets.Audio(sampling_rate=16_000))
    for dataset, runs in (
        (rows, 1),
        (rows, 1),
        (rows.cast_column("audio", datasets.Audio(sampling_rate=8_000)), 2),
        (rows.with_transform(lambda batch: batch), 3),
        (rows.with_transform(lambda batch: batch), 4),
    ):
        rate(dataset)
        assert len(measured) == runs


def test_old_and_broken_ones_are_measured_again(folder: Path, measured: list[Any]) -> None:
    rate(folder)
    (file,) = (folder.parent / "cache" / "loader").iterdir()
    yesterday = time.time() - 25 * 3600
    os.utime(file, (yesterday, yesterday))
    rate(folder)
    assert len(measured) == 2
    file.write_text("{")
    rate(folder)
    assert len(measured) == 3


def test_old_ones_are_removed(folder: Path) -> None:
    rate(folder)
    (file,) = (folder.parent / "cache" / "loader").iterdir()
    yesterday = time.time() - 25 * 3600
    os.utime(file, (yesterday, yesterday))
    rate(folder, seconds=0.06)
    assert not file.exists()


def test_what_runs_code_of_its_own_is_measured(folder: Path) -> None:
    manager = ac.ASRConfigManager(gpu="T4")
    manager.profile_dataset(folder, progress=False)
    loader_rate = rate(folder)
    own = Measured(
        open_source([str(folder / "0.wav")]), manager.dataset, manager.durations, manager.hardware.cpu, None, {}
    )
    own.store(loader_rate)
    assert own.find() is None
