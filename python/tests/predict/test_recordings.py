"""The recordings that come with the package, against steps that are recorded now; the folder of kept traces."""

from __future__ import annotations

import gzip
import json
import multiprocessing
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import asrconfig_go as ac
from asrconfig_go._core.files import cache_folder, fingerprint
from asrconfig_go.predict import MemoryModel
from asrconfig_go.predict.memory_settings import MemorySettings, Target
from asrconfig_go.predict.recordings import (
    FOLDER,
    RecordedSettings,
    TraceCache,
    code_versions,
    is_current,
    open_recording,
    open_trace,
    recorded_models,
)
from locations import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "build"))
FILES = {file: name for name, file in recorded_models().items()}
LIMIT = 2 << 20  # bytes of all


def test_recordings_are_small_and_of_known_models() -> None:
    assert sum(file.stat().st_size for file in FOLDER.iterdir()) <= LIMIT
    assert set(FILES) == {file.name for file in FOLDER.glob("*.xz")}
    names = {*ac.known_models(), "tiny-wav2vec2", "tiny-whisper"}
    assert set(recorded_models()) <= names


def test_what_no_recording_has_is_none() -> None:
    settings = MemorySettings("fp16")
    assert open_recording("facebook/wav2vec2-base", settings, 7) is not None
    assert open_recording("facebook/wav2vec2-base", settings, 8) is None, "bfloat16 suits those cards"
    assert open_recording("someone/model", settings, 7) is None
    for other in ({"lora_rank": 8}, {"optimizer": "sgd"}, {"freeze_feature_encoder": True}):
        assert open_recording("facebook/wav2vec2-base", MemorySettings("fp16", **other), 7) is None


def _is_recorded_with_these_versions() -> bool:
    return "torch" in code_versions() and is_current()


# Of models that take seconds to record two settings each, by turns all that there are; of tiny ones all, the first in
# the quick tests.
CHECKED = [
    *((name, slice(1)) for name in ("tiny-whisper", "tiny-wav2vec2")),
    *(pytest.param(name, slice(1, None), marks=pytest.mark.slow) for name in ("tiny-whisper", "tiny-wav2vec2")),
    *(
        pytest.param(name, slice(number % 4, None, 4), marks=pytest.mark.slow)
        for number, name in enumerate(sorted(set(FILES.values()) - {"tiny-whisper", "tiny-wav2vec2"}))
    ),
]


@pytest.mark.parametrize(("name", "subset"), CHECKED)
def test_recordings_are_what_a_step_shows_now(name: str, subset: slice) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from record_models import SETTINGS, recorded

    if not _is_recorded_with_these_versions():
        pytest.skip("recorded with other versions of torch or transformers")
    for settings, capability in SETTINGS[subset]:
        wanted = MemorySettings(settings.precision, settings.gradient_checkpointing, accumulation=3)
        recording = open_recording(name, wanted, settings.kernels)
        assert recording is not None
        fresh = gzip.compress(json.dumps(recorded(name, settings, capability)).encode(), compresslevel=1)
        answers = [_answers(opened, wanted) for opened in (recording, open_trace(fresh))]
        assert answers[0] == answers[1], f"run build/record_models.py: {name}, {settings}"


def _answers(opened: dict[str, Any], wanted: MemorySettings) -> list[Any]:
    """The memory of steps at some shapes, to the byte, and what they run."""
    with MemoryModel(opened, wanted, Target.find("T4")) as memory:
        shapes = [(1, 1.0), (3, 2.5), (8, 4.0)]
        return [(memory.estimate(*shape, timeline=0), memory.work(*shape)) for shape in shapes]


@pytest.mark.parametrize(("gpu", "kernels"), [("T4", 7), ("L4", 8), ("H100", 9), ("P100", 0)])
def test_a_recording_answers_for_its_cards(gpu: str, kernels: int) -> None:
    precision: Any = {0: "fp32", 7: "fp16"}.get(kernels, "bf16")
    assert RecordedSettings.of(MemorySettings(precision), kernels) is not None
    recorded = MemoryModel.of_known("tiny-wav2vec2", gpu=gpu, record=False, precision=precision, accumulation=3)
    assert recorded is not None
    with recorded as memory:
        assert memory.estimate(4, 2.0).peak_reserved > 0
        assert memory.work(4, 2.0)["operations"]


def test_folders_follow_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("ASRCONFIG_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder("traces") == tmp_path / "xdg" / "asrconfig-go" / "traces"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder("traces") == tmp_path / ".cache" / "asrconfig-go" / "traces"
    monkeypatch.setenv("ASRCONFIG_CACHE", str(tmp_path / "own"))
    assert TraceCache().folder == tmp_path / "own" / "traces"


def test_a_fingerprint_tells_values_apart_and_not_their_order() -> None:
    assert fingerprint({"a": 1, "b": [2]}) == fingerprint({"b": [2], "a": 1})
    texts = [fingerprint(x) for x in (1, "1", 1.5, None, [], ["a", "b"], [["a"], "b"])]
    assert len(set(texts)) == len(texts)
    assert all(len(text) == 32 for text in texts)


def test_the_recorder_s_own_code_is_a_version() -> None:
    pytest.importorskip("torch")
    versions = code_versions()
    assert {"torch", "recorder"} <= versions.keys()
    assert len(versions["recorder"]) == 16


def test_stored_traces_are_found(tmp_path: Path) -> None:
    cache = TraceCache(tmp_path / "new")
    assert cache.find("k") is None
    cache.store("k", b"data")
    path = cache.find("k")
    assert path is not None and path.read_bytes() == b"data"


def test_the_longest_unused_goes_first(tmp_path: Path) -> None:
    cache = TraceCache(tmp_path, max_bytes=25)
    for age, name in ((300, "a"), (200, "b")):
        cache.store(name, bytes(10))
        path = tmp_path / f"{name}.trace"
        os.utime(path, (time.time() - age,) * 2)
    assert cache.find("a") is not None  # used now: b is the older one
    cache.store("c", bytes(10))
    assert sorted(file.stem for file in tmp_path.iterdir()) == ["a", "c"]


def test_a_folder_that_cannot_be_written_costs_only_time(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = TraceCache(tmp_path / "file" / "below")
    cache.store("k", b"data")
    assert cache.find("k") is None


def _store_often(folder: Path, number: int) -> None:
    cache = TraceCache(folder, max_bytes=50_000)
    for i in range(100):
        cache.store(f"k{(i * number) % 7}", bytes([number]) * 10_000)
        path = cache.find("k0")
        if path is not None:
            try:
                data = path.read_bytes()
            except FileNotFoundError:  # removed by another process to make room
                continue
            assert len(data) == 10_000 and len(set(data)) == 1


def test_processes_share_the_folder(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_store_often, args=(tmp_path, n)) for n in (1, 2, 3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    files = list(tmp_path.iterdir())
    assert files and all(f.suffix == ".trace" and f.stat().st_size == 10_000 for f in files)
    assert sum(f.stat().st_size for f in files) <= 50_000
