"""The folder of kept traces: found again, bounded, and safe when several processes use it."""

from __future__ import annotations

import multiprocessing
import os
import time
from pathlib import Path

import pytest

from asrconfig_go._core.files import cache_folder, fingerprint
from asrconfig_go.predict.recordings import TraceCache, code_versions


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
    cache.discard("k")
    cache.discard("k")
    assert cache.find("k") is None
    assert list(cache.folder.iterdir()) == []


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
    cache.discard("k")


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
