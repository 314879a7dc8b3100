"""What several tests need: clips as files, and a plan."""

from __future__ import annotations

import copy
import gc
import math
import os
import signal
import wave
from array import array
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

import asrconfig_go as ac
from asrconfig_go.predict import ModelProfile

WavMaker = Callable[..., Path]


@pytest.fixture(autouse=True, scope="module")
def small_garbage() -> None:
    """Lets collections pass over what is imported: each training makes several, half a second each beside torch."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    gc.unfreeze()  # else extensions report what is left when the process ends as leaks


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keeps what the tests cache out of the user's folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ASRCONFIG_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def fresh_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own, in which nothing is measured yet, with the traces that earlier tests made."""
    traces, cache = Path(os.environ["ASRCONFIG_CACHE"], "traces"), tmp_path / "cache"
    traces.mkdir(exist_ok=True)
    cache.mkdir()
    (cache / "traces").symlink_to(traces)
    monkeypatch.setenv("ASRCONFIG_CACHE", str(cache))
    return cache


@pytest.fixture
def heard_ctrl_c() -> Iterator[None]:
    """Lets subprocesses hear SIGINT: where the tests run in the background, they inherit that it is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@cache
def tone(samples: int) -> bytes:
    """16-bit samples of a tone, the same for all tests that ask for as many."""
    return array("h", [int(8000 * math.sin(i / 8)) for i in range(samples)]).tobytes()


@pytest.fixture
def make_wav(tmp_path: Path) -> WavMaker:
    """A function (name, seconds, rate) that writes a 16-bit mono WAV file of a tone."""

    def make(name: str, seconds: float = 1.0, rate: int = 16_000) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with wave.open(str(path), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(rate)
            file.writeframes(tone(round(seconds * rate)))
        return path

    return make


@pytest.fixture(scope="session")
def t4_plan() -> ac.TrainingConfig:
    clips = [[0.0] * 8000 for _ in range(40)]
    model = ModelProfile(total_parameters=300_000_000)
    return ac.create_optimal_config(clips, model, gpu="T4", sampling_rate=1000, verbose=False)[0]


@pytest.fixture
def plan(t4_plan: ac.TrainingConfig) -> ac.TrainingConfig:
    """A plan for a T4 from arrays of 8 s and a model made by hand; a copy for each test."""
    return copy.deepcopy(t4_plan)
