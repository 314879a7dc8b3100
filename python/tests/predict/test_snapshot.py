"""Predicted runs as memory snapshots: what PyTorch's own tools make of them, and the figures of the estimate."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import pickletools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from asrconfig_go._core import native
from asrconfig_go.errors import InvalidArgumentError, NotFoundError
from asrconfig_go.predict import MemoryEstimate, MemoryModel, estimate_memory
from asrconfig_go.predict.snapshot import snapshot_of
from locations import REPOSITORY

TRACE = REPOSITORY / "core" / "memory" / "testdata" / "wav2vec2.trace"
TAKEN = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}
# What the viewer's unpickler reads (torch/utils/viz/MemoryViz.js), by the names of pickletools.
READ = {
    "PROTO", "FRAME", "MEMOIZE", "BINGET", "LONG_BINGET", "MARK", "STOP", "APPEND", "APPENDS", "SETITEM", "SETITEMS",
    "EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "TUPLE", "BININT", "BININT1", "BININT2",
    "LONG1", "BINFLOAT", "NEWTRUE", "NEWFALSE", "NONE", "SHORT_BINUNICODE", "BINUNICODE",
}  # fmt: skip


@pytest.fixture(scope="module", params=["", "expandable_segments:True"], ids=["default", "expandable"])
def estimate(request: pytest.FixtureRequest) -> Iterator[MemoryEstimate]:
    with MemoryModel.load(TRACE, gpu="T4", allocator=request.param) as memory:
        yield memory.estimate(4, 5.0, 30)


@pytest.fixture(scope="module")
def saved(estimate: MemoryEstimate, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("snapshot") / "run.pickle"
    written = estimate.save_snapshot(path)
    assert (written.path, written.left_out) == (path, 0)
    assert written.events > 3000
    return path


@pytest.fixture
def snapshot(saved: Path) -> dict[str, Any]:
    return load(saved)


def load(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        read: dict[str, Any] = pickle.load(file)
    return read


def peak(sizes: Iterator[int]) -> int:
    now = highest = 0
    for size in sizes:
        now += size
        highest = max(highest, now)
    return highest


def allocations(events: list[dict[str, Any]]) -> Iterator[int]:
    for event in events:
        if event["action"] == "alloc":
            yield event["size"]
        elif event["action"] == "free_completed":
            yield -event["size"]


def test_peaks_are_the_estimates(estimate: MemoryEstimate, snapshot: dict[str, Any]) -> None:
    events = snapshot["device_traces"][0]
    assert peak(allocations(events)) == estimate.peak_requested
    assert peak(TAKEN[e["action"]] * e["size"] for e in events if e["action"] in TAKEN) == estimate.peak_reserved
    assert (
        sum(segment["total_size"] for segment in snapshot["segments"]) == estimate.peak_reserved
    )  # nothing given back


def test_events_replayed_allocate_what_the_estimate_says(estimate: MemoryEstimate, snapshot: dict[str, Any]) -> None:
    """The allocator's rounding is in blocks alone, so its peak is that of the events through another simulation."""
    numbers: dict[int, int] = {}
    events, born = [], 0
    for event in snapshot["device_traces"][0]:
        if event["action"] == "alloc":
            numbers[event["addr"]], born = born, born + 1
            events.append(event["size"])
        elif event["action"] == "free_completed":
            events.append(-1 - numbers.pop(event["addr"]))
    replayed = native.call("memory.replay", {"events": events, "settings": estimate.settings.allocator})
    assert replayed["stats"]["peak_allocated"] == estimate.peak_allocated
    assert replayed["stats"]["peak_reserved"] == estimate.peak_reserved
    blocks = [block for segment in snapshot["segments"] for block in segment["blocks"]]
    assert [block["size"] for segment in replayed["segments"] for block in segment["blocks"]] == [
        b["size"] for b in blocks
    ]


def test_segments_are_tiled_by_their_blocks(snapshot: dict[str, Any]) -> None:
    for segment in snapshot["segments"]:
        address = segment["address"]
        for block in segment["blocks"]:
            assert block["address"] == address
            assert (block["state"] == "active_allocated") == bool(block["frames"])
            address += block["size"]
        assert address == segment["address"] + segment["total_size"]
        active = [block for block in segment["blocks"] if block["state"] == "active_allocated"]
        assert segment["allocated_size"] == segment["active_size"] == sum(block["size"] for block in active)
        assert segment["requested_size"] == sum(block["requested_size"] for block in active)


def test_stacks_name_operation_modules_and_phase(snapshot: dict[str, Any]) -> None:
    events = snapshot["device_traces"][0]
    stacks = {tuple((f["filename"], f["line"], f["name"]) for f in event["frames"]) for event in events[:-1]}
    phases = {stack[-1] for stack in stacks}
    assert ("step", 1, "micro forward") in phases and ("step", 3, "micro backward") in phases
    assert ("step", 0, "load") in phases and ("step", 2, "step optimizer") in phases
    assert {stack[0][0] for stack in stacks} == {"operation"}
    inner = next(s for s in stacks if s[1][2].endswith(".layers.1.feed_forward.output_dense"))
    assert [name for kind, _, name in inner if kind == "module"] == [
        "wav2vec2.encoder.layers.1.feed_forward.output_dense",
        "wav2vec2.encoder.layers.1.feed_forward",
        "wav2vec2.encoder.layers.1",
        "wav2vec2.encoder",
        "wav2vec2",
    ]


def test_categories_are_the_components_of_the_estimate(estimate: MemoryEstimate, snapshot: dict[str, Any]) -> None:
    events = snapshot["device_traces"][0]
    categories = {event["category"] for event in events if "category" in event}
    assert categories >= {*estimate.at_peak.components, "unknown"}  # without the last the viewer ends with an error
    segments = [e for e in events if e["action"] in TAKEN]
    assert all(e["category"] == e["user_metadata"] != "unknown" for e in segments)
    parameters = sum(e["size"] for e in events if e["action"] == "alloc" and e["category"] == "parameters")
    assert parameters == pytest.approx(estimate.at_peak.components["parameters"], rel=0.01)


def test_times_count_the_events(snapshot: dict[str, Any]) -> None:
    times = [event["time_us"] for event in snapshot["device_traces"][0]]
    assert times == sorted(times)
    assert times[0] == 0


def test_the_viewer_reads_every_opcode(saved: Path) -> None:
    opcodes = {opcode.name for opcode, _, _ in pickletools.genops(saved.read_bytes())}
    assert "LONG1" in opcodes or "BININT" in opcodes
    assert opcodes <= READ


def test_pytorchs_own_functions_read_it(estimate: MemoryEstimate, snapshot: dict[str, Any]) -> None:
    viz = pytest.importorskip("torch.cuda._memory_viz")
    summary = viz.segsum(snapshot)
    assert f"segments: {len(snapshot['segments'])}\n" in summary
    assert f"total_reserved: {viz.Bytes(estimate.peak_reserved)}\n" in summary
    printed = viz.trace(snapshot)
    expandable = "expandable" in estimate.settings.allocator
    assert printed.startswith(f"Device 0 ----------------\n{len(snapshot['device_traces'][0])} entries\n")
    assert ("cudaMalloc(" in printed) != expandable
    lines: list[str] = []
    viz.memory(snapshot, lines.append)
    allocated = [line for line in lines[0].splitlines() if ";active_allocated;step:0:load;" in line]
    assert sum(int(line.split()[-1]) for line in allocated) > 0
    for page in (viz.trace_plot(snapshot), viz.trace_plot(snapshot, plot_segments=True), viz.segment_plot(snapshot)):
        assert "snapshot.pickle" in page


def test_events_that_are_left_out_are_counted() -> None:
    opened = native.call("memory.open", {"path": str(TRACE)})
    question = {"trace": opened["trace"], "batch": 4, "length": 80000, "labels": 30}
    newest = native.call("memory.snapshot", {**question, "most": 100})
    full = native.call("memory.snapshot", question)
    native.call("memory.close", {"trace": opened["trace"]})
    (events,) = snapshot_of(newest, "")["device_traces"]
    assert "unknown" in {event.get("category") for event in events}
    assert newest["left_out"] == len(full["events"]["action"]) - 100 > 0
    assert events[0]["time_us"] == newest["left_out"]
    assert events == snapshot_of(full, "")["device_traces"][0][-len(events) :]


def test_a_run_that_does_not_fit_is_saved_as_on_a_larger_gpu(tmp_path: Path) -> None:
    with MemoryModel.load(TRACE) as memory:
        needed = memory.estimate(4, 5.0, 30).peak_reserved
        memory.target = dataclasses.replace(memory.target, available_bytes=needed // 2, context_bytes=0)
        estimate = memory.estimate(4, 5.0, 30)
        assert estimate.fits is False
        estimate.save_snapshot(tmp_path / "run.pickle")
    segments = load(tmp_path / "run.pickle")["segments"]
    assert sum(segment["total_size"] for segment in segments) == estimate.peak_reserved == needed


def test_wrong_names_and_places(estimate: MemoryEstimate, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match=r"snapshot to 'run\.html': the name does not end in \.pickle"):
        estimate.save_snapshot(tmp_path / "run.html")
    with pytest.raises(NotFoundError, match="cannot write"):
        estimate.save_snapshot(tmp_path / "no" / "run.pickle")
    assert list(tmp_path.iterdir()) == []


def test_after_the_model_is_closed(tmp_path: Path) -> None:
    with MemoryModel.load(TRACE) as memory:
        estimate = memory.estimate(4, 5.0, 30)
        with pytest.raises(InvalidArgumentError, match="the estimate was copied"):
            copy.deepcopy(estimate).save_snapshot(tmp_path / "run.pickle")
        with pytest.raises(InvalidArgumentError, match="the estimate was copied"):
            pickle.loads(pickle.dumps(estimate)).save_snapshot(tmp_path / "run.pickle")
    with pytest.raises(InvalidArgumentError, match="its memory model is closed") as raised:
        estimate.save_snapshot(tmp_path / "run.pickle")
    assert "inside the with block" in str(raised.value)


def test_formulas_have_no_allocations(tmp_path: Path) -> None:
    estimate = estimate_memory("wav2vec2-base", batch=2, seconds=5, gpu="T4", estimator="published")
    with pytest.raises(InvalidArgumentError, match="estimator='published' has no allocations") as raised:
        estimate.save_snapshot(tmp_path / "run.pickle")
    assert 'ask with estimator="trace"' in str(raised.value)


def test_estimates_are_equal_whatever_their_run() -> None:
    with MemoryModel.load(TRACE) as memory:
        assert memory.estimate(4, 5.0, 30) == memory.estimate(4, 5.0, 30)
        assert "_run" not in memory.estimate(4, 5.0, 30).to_dict()
