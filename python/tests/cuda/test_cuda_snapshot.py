"""Memory snapshots of the real torch.cuda on the stand-in runtime, and those that are written of predictions."""

from __future__ import annotations

import math
import pickle
from pathlib import Path

import pytest

from asrconfig_go.predict import MemoryModel
from cuda_tests.ctc import small_wav2vec2
from cuda_tests.forked import run_on_cuda
from cuda_tests.process import stand_in, torch_version, with_kept_workspaces  # noqa: F401
from locations import REPOSITORY

TRACE = REPOSITORY / "core" / "memory" / "testdata" / "wav2vec2.trace"
MIB = 2**20


@pytest.mark.skipif(torch_version() < (2, 15), reason="predicted snapshots have the format of torch 2.15")
@pytest.mark.parametrize("allocator", ["", "expandable_segments:True"])
def test_predicted_snapshots_have_the_format_of_real_ones(allocator: str, tmp_path: Path) -> None:
    with MemoryModel.load(TRACE, allocator=allocator) as memory:
        memory.estimate(2, 3.0, 10).save_snapshot(tmp_path / "run.pickle")
    predicted = pickle.loads((tmp_path / "run.pickle").read_bytes())
    (events,), segment = predicted["device_traces"], predicted["segments"][0]
    block = next(b for b in segment["blocks"] if b["state"] == "active_allocated")

    real = run_on_cuda("snapshot_keys", allocator=allocator)
    assert sorted(predicted) == real["snapshot"]
    assert sorted(segment) == real["segment"]
    assert sorted(block) == real["block"]
    assert sorted(block["frames"][0]) == real["frame"]
    assert sorted({key for event in events for key in event} - {"category"}) == real["events"]
    assert {name: predicted["allocator_settings"][name] for name in real["settings"]} == real["settings"]
    assert [type(segment["segment_pool_id"]).__name__, type(events[0]["user_metadata"]).__name__] == real["types"]
    assert {action for action, _ in real["actions"]} <= {event["action"] for event in events} | {
        "segment_free", "segment_unmap"
    }  # fmt: skip
    assert ["alloc", 4000] in real["actions"]  # sizes of events are not rounded
    assert real["kept"] == [1536, 1200, 1200]  # those of blocks are


def test_guard_saves_the_moment_in_which_memory_ran_out() -> None:
    found = run_on_cuda("guarded_trainings", memory_bytes=with_kept_workspaces(170_000_000))
    name = "_asrconfig-oom-training.pickle"
    assert found["off"]["files"] == {}
    assert [path for _, path in found["off"]["events"]] == ["", ""]
    for mode in ("blocks", "history"):
        (first, path), (second, again) = found[mode]["events"]
        assert first.startswith("step 0 (training): 8 → 4 after CUDA out of memory. Tried to allocate 20.00 MiB.")
        assert (path, again) == (f"/{name}", ""), "the first error of each place"
        assert first.endswith(f"{name}") and "snapshot" not in second
        (file,) = found[mode]["files"].values()
        assert file["allocated"] == found[mode]["held"], "before anything was freed"
        weights = sum(4 * math.prod(p.shape) for p in small_wav2vec2().parameters())
        assert file["parameters"] == pytest.approx(weights, rel=0.01)
    assert found["blocks"]["files"][name]["last"] is None
    assert found["history"]["files"][name]["last"] == "oom"
    assert "training_step" in found["history"]["files"][name]["stack"]
    assert [found[mode]["recording"] for mode in found] == [[False, False], [False, False], [True, False]]
