"""The memory monitor: its fields over a library played by the test, then the real one on this machine."""

from __future__ import annotations

import copy
import gc
import itertools
import math
import os
import pickle
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from asrconfig_go._core import native
from asrconfig_go._core._layout import GPUStats
from asrconfig_go.errors import AsrConfigError, ForkedProcessError, InvalidArgumentError, LibraryError, NotFoundError
from asrconfig_go.watch.memory_monitor import MemoryMonitor, _gpu_memory
from asrconfig_go.watch.telemetry import GPUMemory, RunLog

GIB = 1 << 30


class FakeLibrary:
    """Answers the monitor's operations and fills its struct with what the test sets."""

    def __init__(self, gpus: list[tuple[int, int, int, int, int]]) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.gpus = gpus  # total, used, free, peak, valid
        self.host = (16 * GIB, 4 * GIB, 6 * GIB)
        self.code = 0
        self.steps: list[dict[str, float]] = []

    def call(self, op: str, args: dict[str, Any]) -> Any:
        self.calls.append((op, args))
        started = {"monitor": 5, "gpus": [f"GPU {i}" for i in range(len(self.gpus))], "gpu_error": ""}
        return started if op == "monitor.start" else {}

    def struct_call(self, function: str, monitor: int, struct: Any) -> Any:
        return {"ac_stats_read": partial(self._fill, struct), "ac_step_put": partial(self._take, struct)}[function]

    def _fill(self, stats: Any) -> int:
        stats.samples += 1
        stats.errors, stats.unix_nanos = 2, 1_500_000_000
        stats.host_total, stats.host_used, stats.host_peak = self.host
        stats.gpu_count = len(self.gpus)
        for slot, values in zip(stats.gpu, self.gpus, strict=False):
            slot.total, slot.used, slot.free, slot.peak, slot.valid = values
            slot.headroom = slot.free + GIB
        stats.alerts = 3
        return self.code

    def _take(self, step: Any) -> int:
        self.steps.append({name: getattr(step, name) for name, _ in step._fields_})
        return self.code

    def ops(self) -> list[str]:
        return [op for op, _ in self.calls]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeLibrary]:
    library = FakeLibrary([(10 * GIB, 9 * GIB, GIB, 9 * GIB, 1), (10 * GIB, 2 * GIB, 8 * GIB, 3 * GIB, 1)])
    monkeypatch.setattr(native, "call", library.call)
    monkeypatch.setattr(native, "struct_call", library.struct_call)
    yield library
    gc.collect()  # finalizers while the fake is still in place


def test_a_snapshot_has_every_figure(fake: FakeLibrary) -> None:
    with MemoryMonitor() as monitor:
        shot = monitor.read()
        assert (shot.time, shot.samples, shot.errors) == (1.5, 1, 2)
        assert (shot.host_total, shot.host_used, shot.host_peak) == (16 * GIB, 4 * GIB, 6 * GIB)
        assert shot.gpus[1] == GPUMemory(10 * GIB, 2 * GIB, 8 * GIB, 3 * GIB, None, None, 9 * GIB)
        assert (shot.host_fraction, shot.gpus[0].fraction) == (0.25, 0.9)


def test_pytorch_s_counters_are_known_once_a_step_told_of_them() -> None:
    sizes = {"total": 10, "used": 9, "free": 1, "peak": 9, "valid": 1, "allocated": 4, "reserved": 8, "headroom": 5}
    assert _gpu_memory(GPUStats(**sizes, torch_valid=1)) == GPUMemory(10, 9, 1, 9, 4, 8, 5)
    assert _gpu_memory(GPUStats(**sizes, torch_valid=0)) == GPUMemory(10, 9, 1, 9, None, None, 5)


def test_what_does_not_answer_is_unknown_not_zero(fake: FakeLibrary) -> None:
    fake.gpus = [(10 * GIB, 9 * GIB, GIB, 9 * GIB, 0), (10 * GIB, 2 * GIB, 8 * GIB, 3 * GIB, 1)]
    fake.host = (0, 0, 0)
    with MemoryMonitor() as monitor:
        shot = monitor.read()
        assert shot.gpus[0] == GPUMemory(None, None, None, None)
        assert (shot.gpus[0].fraction, shot.host_total, shot.host_fraction) == (None, None, None)


def test_stopping_twice_stops_once_and_keeps_the_last_sample(fake: FakeLibrary) -> None:
    monitor = MemoryMonitor()
    assert monitor.running
    monitor.stop()
    monitor.stop()
    assert fake.ops() == ["monitor.start", "monitor.stop"]
    assert not monitor.running
    assert monitor.read().host_used == 4 * GIB
    with pytest.raises(AsrConfigError, match="stopped"):
        monitor.history()


def test_an_abandoned_monitor_stops(fake: FakeLibrary) -> None:
    monitor = MemoryMonitor()
    del monitor
    gc.collect()
    assert fake.ops() == ["monitor.start", "monitor.close"]


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_a_copy_reads_nothing_and_stops_nothing(fake: FakeLibrary, duplicate: Any) -> None:
    with MemoryMonitor(30) as monitor:
        other = duplicate(monitor)
        assert (other.interval_ms, other.running, other.headroom()) == (30, False, ())
        assert (other.read().samples, other.read().gpus, other.read().time) == (0, (), None)
        other.stop()
        assert monitor.running
    assert fake.ops() == ["monitor.start", "monitor.stop"]


def test_in_a_forked_child_reads_raise_and_nothing_is_stopped(
    fake: FakeLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monitor = MemoryMonitor()
    with monkeypatch.context() as child:
        child.setattr(native, "in_forked_child", lambda: True)
        for read in (monitor.read, monitor.headroom, monitor.step):
            with pytest.raises(ForkedProcessError):
                read()
        assert not monitor.running
        child.setattr(os, "getpid", lambda: -1)
        monitor._finalizer()
    assert fake.ops() == ["monitor.start"]


def test_a_library_that_panicked_is_told(fake: FakeLibrary) -> None:
    with MemoryMonitor() as monitor:
        fake.code = 3
        with pytest.raises(LibraryError, match="code 3"):
            monitor.read()
        fake.code = 0


def test_headroom_and_alert_changes_come_with_the_cheap_read(fake: FakeLibrary) -> None:
    with MemoryMonitor() as monitor:
        assert monitor.headroom() == (2 * GIB, 9 * GIB)
        assert monitor.alert_changes == 3
        fake.gpus[0] = (10 * GIB, 9 * GIB, GIB, 9 * GIB, 0)
        assert monitor.headroom() == (None, 9 * GIB)
    assert fake.ops() == ["monitor.start", "monitor.stop"]


def test_steps_count_themselves_and_measure_their_time(fake: FakeLibrary) -> None:
    with MemoryMonitor() as monitor:
        monitor.step()
        monitor.step(audio_s=3, longest_s=1.5)
        monitor.step(kind="evaluation", spent_s=2.0)
        monitor.step(40, waited_s=0.5)
        monitor.step()
        with pytest.raises(InvalidArgumentError, match="kind"):
            monitor.step(kind="warm-up")  # type: ignore[arg-type]
    monitor.step()
    assert [(step["number"], step["kind"], step["gpu"]) for step in fake.steps] == [
        *((1, 0, -1), (2, 0, -1), (2, 1, -1), (40, 0, -1), (41, 0, -1))
    ]
    assert fake.steps[1]["audio_s"] == 3 and fake.steps[1]["longest_s"] == 1.5
    assert fake.steps[2]["spent_s"] == 2
    assert 0 <= fake.steps[0]["spent_s"] < 60
    assert math.isnan(fake.steps[2]["audio_s"]) and math.isnan(fake.steps[1]["allocated"])


def test_the_first_step_begins_with_the_training(fake: FakeLibrary, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("asrconfig_go.watch.memory_monitor.time.perf_counter", lambda: now[0])
    with MemoryMonitor() as monitor:
        now[0] += 600.0  # of setting up
        monitor.event("training", "training begins")
        for _ in range(2):
            now[0] += 2.0
            monitor.step()
            monitor.event("training", "epoch 1 ends")
    assert [step["spent_s"] for step in fake.steps] == [2.0, 2.0]


class FakeTorch:
    """``torch`` with a caching allocator on two devices, of which the second has nothing."""

    def __init__(self) -> None:
        self.cuda, self.resets = self, 0
        self.peak = 9

    def is_initialized(self) -> bool:
        return True

    def device_count(self) -> int:
        return 2

    def get_device_properties(self, device: int) -> Any:
        return SimpleNamespace(name="A100")

    def memory_stats_as_nested_dict(self, device: int) -> dict[str, Any]:
        if device == 1:
            return {
                "allocated_bytes": {"all": {"current": 0, "peak": 0}},
                "reserved_bytes": {"all": {"current": 0, "peak": 0}},
            }
        return {
            "allocated_bytes": {"all": {"current": 5, "peak": self.peak}},
            "reserved_bytes": {"all": {"current": 20, "peak": 30}},
        }

    def reset_peak_memory_stats(self, device: int) -> None:
        self.resets, self.peak = self.resets + 1, 5


@pytest.mark.parametrize("reset", [True, False])
def test_a_step_brings_torch_counters(fake: FakeLibrary, monkeypatch: pytest.MonkeyPatch, reset: bool) -> None:
    torch = FakeTorch()
    monkeypatch.setitem(sys.modules, "torch", torch)
    with MemoryMonitor(reset_peaks=reset) as monitor:
        monitor.step()
        monitor.step()
    names = ("gpu", "allocated", "reserved", "peak_allocated", "peak_reserved")
    assert [[step[name] for name in names] for step in fake.steps] == [
        [0, 5, 20, 9, 30],
        [0, 5, 20, 5 if reset else 9, 30],
    ]
    assert torch.resets == (2 if reset else 0)


@pytest.mark.parametrize("interval", [float("nan"), "100", True, None])
def test_an_interval_that_is_no_number(fake: FakeLibrary, interval: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="interval_ms"):
        MemoryMonitor(interval)
    assert fake.calls == []


# From here on the real library.


def test_this_machine() -> None:
    with MemoryMonitor(5) as monitor:
        first = monitor.read()
        deadline = time.monotonic() + 5
        while monitor.read().samples < first.samples + 3 and time.monotonic() < deadline:
            time.sleep(0.005)
        shot = monitor.read()
        assert shot.samples >= first.samples + 3
        assert shot.time is not None and abs(shot.time - time.time()) < 60
        assert shot.host_total is not None and shot.host_used is not None and shot.host_peak is not None
        assert 0 < shot.host_used <= shot.host_peak <= shot.host_total
        assert len(shot.gpus) == len(monitor.gpu_names)
        assert bool(monitor.gpu_names) != bool(monitor.gpu_error)
        history = monitor.history(2)
        assert 1 <= len(history.times_s) <= 2
        assert len(history.host_used_bytes) == len(history.times_s)
        assert history.host_total_bytes == shot.host_total


def test_a_story_outlives_its_monitor(tmp_path: Path) -> None:
    with MemoryMonitor(5) as monitor:
        monitor.step(7, audio_s=3.0)
        monitor.step(kind="checkpoint")
        monitor.event("training", "epoch 2 begins")
        at = monitor.activity().at_s
        assert at is None or at > 0
    run_log = monitor.run_log()
    assert (run_log.steps.number, run_log.steps.kind, run_log.steps.audio_s) == (
        (7, 7),
        ("train", "checkpoint"),
        (3.0, None),
    )
    assert [(event.kind, event.gpu, event.text) for event in run_log.events] == [("training", -1, "epoch 2 begins")]
    assert run_log.interval_s == 0.005 and run_log.samples == monitor.read().samples > 0
    assert run_log.host.total_bytes == monitor.read().host_total
    assert run_log.memory.host_used_bytes[0] and len(run_log.memory.times_s) == len(run_log.memory.host_used_bytes)
    assert monitor.alerts() == run_log.alerts == ()
    monitor.save(tmp_path / "run.json")
    assert RunLog.load(tmp_path / "run.json") == run_log
    assert [file.name for file in tmp_path.iterdir()] == ["run.json"]
    with pytest.raises(NotFoundError, match="no/such/folder"):
        monitor.save(tmp_path / "no/such/folder" / "run.json")
    with pytest.raises(AsrConfigError, match="copy"):
        copy.copy(monitor).run_log()


def test_steps_that_are_told_some_at_a_time_keep_their_times() -> None:
    with MemoryMonitor(interval_ms=60_000) as monitor:
        for number in (1, 2, 3, 4):
            monitor.step(number)
            time.sleep(0.05)
        steps = monitor.run_log().steps
    assert steps.number == (1, 2, 3, 4)
    passed = [later - earlier for earlier, later in itertools.pairwise(steps.times_s)]
    assert passed == pytest.approx(steps.spent_s[1:], abs=0.02), "not all at the moment of the asking"
