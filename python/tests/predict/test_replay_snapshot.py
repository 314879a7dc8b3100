from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from locations import REPOSITORY

SCRIPT = REPOSITORY / "benchmarks" / "gpu" / "replay_snapshot.py"
MIB = 2**20


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("replay_snapshot", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def entry(action: str, size: int = 0, addr: int = 0, stream: int = 0) -> dict[str, Any]:
    where = "device_free" if action == "oom" else "addr"
    return {"action": action, where: addr, "size": size, "stream": stream, "time_us": 1}


def test_allocations_and_frees_become_numbered_events(script: ModuleType) -> None:
    trace = [
        entry("segment_alloc", 2 * MIB, 0x10000),
        entry("alloc", 1000, 0x10000),
        entry("alloc", 5, 0x10400),
        entry("free_requested", 1000, 0x10000),
        entry("free_completed", 1000, 0x10000),
        entry("alloc", 900, 0x10000),
        entry("free_completed", 5, 0x10400),
        entry("free_completed", 900, 0x10000),
    ]
    recording = script.recording_of(trace)
    assert recording.events == [1000, 5, -1, 900, -2, -3]
    assert recording.reserved == [2 * MIB] * 6
    assert (recording.empty_cache, recording.failed) == ([], [])


def test_reserved_follows_segments_and_pages(script: ModuleType) -> None:
    trace = [
        entry("segment_map", 20 * MIB, 1),
        entry("alloc", 15 * MIB, 1),
        entry("segment_map", 20 * MIB, 2),
        entry("alloc", 10 * MIB, 2),
        entry("free_completed", 10 * MIB, 2),
        entry("segment_unmap", 20 * MIB, 2),
        entry("alloc", MIB, 2),
    ]
    assert script.recording_of(trace).reserved == [20 * MIB, 40 * MIB, 40 * MIB, 20 * MIB]


def test_only_segments_behind_a_snapshot_mean_an_emptied_cache(script: ModuleType) -> None:
    trace = [
        entry("segment_alloc", 20 * MIB, 1),
        entry("alloc", 20 * MIB, 1),
        entry("free_completed", 20 * MIB, 1),
        entry("snapshot"),
        entry("segment_free", 20 * MIB, 1),
        entry("segment_alloc", 30 * MIB, 1),
        entry("alloc", 30 * MIB, 1),
        entry("free_completed", 30 * MIB, 1),
        entry("segment_free", 30 * MIB, 1),  # the allocator's own, to make room
        entry("segment_alloc", 40 * MIB, 1),
        entry("alloc", 40 * MIB, 1),
        entry("snapshot"),
    ]
    recording = script.recording_of(trace)
    assert recording.events == [20 * MIB, -1, 30 * MIB, -2, 40 * MIB]
    assert recording.empty_cache == [2]
    assert recording.reserved == [20 * MIB, 20 * MIB, 30 * MIB, 30 * MIB, 40 * MIB]


def test_a_failed_allocation_takes_a_number(script: ModuleType) -> None:
    trace = [
        entry("oom", 512, 7),
        entry("segment_alloc", 2 * MIB, 1),
        entry("alloc", 3, 1),
        entry("free_completed", 3, 1),
    ]
    recording = script.recording_of(trace)
    assert (recording.events, recording.failed) == ([512, 3, -2], [0])
    assert recording.reserved == [0, 2 * MIB, 2 * MIB]


def test_what_the_simulator_cannot_replay_is_refused(script: ModuleType) -> None:
    with pytest.raises(ValueError, match="2 streams"):
        script.recording_of([entry("alloc", 1, 1, stream=0), entry("alloc", 1, 2, stream=9)])
    with pytest.raises(ValueError, match="from the first allocation on"):
        script.recording_of([entry("free_completed", 1, 1)])


def test_the_first_difference_is_of_memory_or_of_failure(script: ModuleType) -> None:
    recording = {"reserved": [1, 2, 3], "failed": [2]}
    assert script.first_difference(recording, {"reserved": [1, 2, 3], "failed": [2]}) is None
    assert script.first_difference(recording, {"reserved": [1, 9, 3], "failed": [2]}) == 1
    assert script.first_difference(recording, {"reserved": [1, 2, 3], "failed": []}) == 2


def test_recorded_files_are_compared(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recording = {
        "events": [1],
        "empty_cache": [],
        "failed": [],
        "reserved": [2 * MIB],
        "settings": "",
        "device_total_bytes": 9,
    }
    path = tmp_path / "case.json"
    path.write_text(json.dumps(recording))
    requests = []

    def call(op: str, args: dict[str, Any]) -> dict[str, Any]:
        requests.append((op, args))
        return {"reserved": [2 * MIB], "failed": [] if len(requests) == 1 else [0]}

    monkeypatch.setattr("asrconfig_go._core.native.call", call)
    assert script.main(["compare", str(path)]) == 0
    assert script.main(["compare", str(path)]) == 1
    assert requests[0] == ("memory.replay", {"events": [1], "empty_cache": [], "settings": "", "device_total_bytes": 9})
    printed = capsys.readouterr().out
    assert "case.json: 1 events, peak 2 MiB, simulated 2 MiB: equal" in printed
    assert "DIFFERS from event 0" in printed


def test_without_a_gpu_recording_says_so(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert script.main(["record", str(tmp_path / "out")]) == 2
    assert "needs a CUDA GPU" in capsys.readouterr().out
    assert not (tmp_path / "out").exists()
