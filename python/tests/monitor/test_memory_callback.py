"""AdaptiveMemoryCallback: what it does at which share of memory, what reporters see, and that the sampler ends."""

from __future__ import annotations

import copy
import gc
import logging
import math
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from asrconfig_go.errors import InvalidArgumentError, LibraryError
from asrconfig_go.monitor.memory_monitor import MemoryMonitor
from training_fixtures import make_plan

pytest.importorskip("transformers")
torch = pytest.importorskip("torch")

from transformers.trainer_callback import TrainerCallback, TrainerState  # noqa: E402

from asrconfig_go.monitor import (  # noqa: E402
    alerts,
    cache_cleaning,
    memory_callback as callback_module,
    messages,
    watch,
    watch_setup,
)
from asrconfig_go.monitor.memory_callback import AdaptiveMemoryCallback  # noqa: E402
from locations import HELPERS, PYTHON  # noqa: E402
from tiny_training import tiny_trainer  # noqa: E402
from watching_fakes import GIB, FakeMonitor, activity, gpu, makes  # noqa: E402


def state(step: int = 0, *, local: bool = True, world: bool = True) -> TrainerState:
    return TrainerState(global_step=step, max_steps=100, is_local_process_zero=local, is_world_process_zero=world)


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Warnings and clean-ups in their order."""
    seen: list[str] = []
    for module in (watch, callback_module, watch_setup, alerts, messages):
        monkeypatch.setattr(module, "say", lambda message, level=0: seen.append(message))
    monkeypatch.setattr(cache_cleaning, "give_back_memory", lambda: seen.append("clean"))
    return seen


def steps(monitor: FakeMonitor, number: int, **options: Any) -> AdaptiveMemoryCallback:
    """A callback that has seen ``number`` steps of a training."""
    options = {"interval_ms": 1e-6, **options}  # else the steps are too short for all of them to be looked at
    callback = AdaptiveMemoryCallback(monitor=makes(monitor), **options)
    callback.on_train_begin(None, state(), None)
    for i in range(number):
        callback.on_step_end(None, state(i + 1), None)
    return callback


def kinds(said: list[str]) -> list[str]:
    words = {"clean": "clean", "over 90%": "warn", "over 95%": "announce"}
    return [next(kind for text, kind in words.items() if text in message) for message in said]


def test_warnings_come_once_per_crossing_with_hysteresis(said: list[str]) -> None:
    used = [5, 8.9, 9.0, 9.3, 8.6, 9.1, 9.4, 8.4, 9.3]
    callback = steps(FakeMonitor([gpu(x) for x in used]), len(used))
    assert said == [
        "memory: GPU 0 9.0 of 10.0 GiB (90%) is over 90%",
        "memory: GPU 0 9.3 of 10.0 GiB (93%) is over 90%",
    ]
    summary = callback.summary()
    assert (summary.warnings, summary.clean_ups, summary.samples, summary.errors) == (2, 0, 7, 1)
    assert "2 warnings, 0 clean-ups, 1 failed of 7 samples" in str(summary)


def test_without_hysteresis_every_crossing_counts(said: list[str]) -> None:
    steps(FakeMonitor([gpu(x) for x in (9.1, 8.9, 9.1, 9.1)]), 4, hysteresis=0.0)
    assert kinds(said) == ["warn", "warn"]


def test_a_full_cache_is_no_alarm_and_hides_none(said: list[str]) -> None:
    cached = gpu(9.9, allocated=4.0, reserved=9.5)
    steps(FakeMonitor([cached] * 3), 3)
    assert said == []
    steps(FakeMonitor([gpu(9.9, allocated=9.2, reserved=9.5)] * 3), 3)
    assert kinds(said) == ["warn", "announce", "clean"]


def test_of_a_card_of_another_process_the_cache_is_not_known(said: list[str]) -> None:
    steps(FakeMonitor([(gpu(5, allocated=3.0, reserved=4.0), gpu(9.9))] * 3), 3)
    assert said == [], "the training does not use the second"
    steps(FakeMonitor([(gpu(5), gpu(9.9))] * 3), 3)
    assert "GPU 1 9.9 of 10.0 GiB" in said[0], "nobody knows which one it uses"


def test_the_host_is_watched_where_there_is_no_gpu(said: list[str]) -> None:
    steps(FakeMonitor(host=96.0), 3)
    assert kinds(said) == ["warn", "announce", "clean"]
    assert "host 96.0 of 100.0 GiB" in said[0]


def test_predictions_are_watched_too_and_told_apart(said: list[str]) -> None:
    monitor = FakeMonitor([gpu(5), gpu(9.1)])
    callback = steps(monitor, 1)
    callback.on_prediction_step(None, state(1), None)
    callback.on_evaluate(None, state(1), None)
    callback.on_save(None, state(1), None)
    assert kinds(said) == ["warn"]
    assert monitor.steps == [
        {"number": 1, "kind": "train"},
        {"number": None, "kind": "evaluation"},
        {"number": 1, "kind": "checkpoint"},
    ]
    assert monitor.events == [
        ("training", "training begins after step 0 of 100"),
        ("training", "evaluation after step 1"),
        ("training", "checkpoint after step 1"),
    ]


def test_a_failing_monitor_never_stops_the_training(said: list[str]) -> None:
    monitor = FakeMonitor([gpu(5)])
    callback = steps(monitor, 1)
    monitor.fail = LibraryError("the library panicked earlier")
    for i in range(3):
        callback.on_step_end(None, state(2 + i), None)
        callback.on_log(None, state(2 + i), None, logs={"loss": 1.0})
        callback.on_save(None, state(2 + i), None)
    callback.on_train_end(None, state(5), None)
    assert said == ["memory is not watched: the library panicked earlier"]
    assert not monitor.running
    assert str(callback.summary()) == "memory was not watched: the library panicked earlier"

    def missing() -> FakeMonitor:
        raise LibraryError("there is no library")

    callback = AdaptiveMemoryCallback(monitor=missing)
    callback.on_train_begin(None, state(), None)
    callback.on_step_end(None, state(1), None)
    callback.on_log(None, state(1), None, logs={"loss": 1.0})
    callback.on_train_end(None, state(1), None)
    assert said[1:] == ["memory is not watched: there is no library"]
    assert "there is no library" in callback.summary().problem


def test_a_second_begin_goes_on_with_the_same_monitor(said: list[str]) -> None:
    first, second = FakeMonitor([gpu(9.1), gpu(9.1), gpu(5)]), FakeMonitor([gpu(5)])
    callback = AdaptiveMemoryCallback(monitor=makes(first, second))
    for i in range(2):
        callback.on_train_begin(None, state(i), None)
        callback.on_step_end(None, state(i + 1), None)
    assert (len(first.steps), kinds(said)) == (2, ["warn"])
    callback.on_train_end(None, state(2), None)
    callback.stop()
    callback.stop()
    assert not first.running
    callback.on_train_begin(None, state(), None)
    assert second.events and callback.summary().warnings == 0


def test_only_the_first_process_of_a_node_samples() -> None:
    callback = AdaptiveMemoryCallback(monitor=makes())
    callback.on_train_begin(None, state(local=False), None)
    callback.on_step_end(None, state(1, local=False), None)
    callback.on_train_end(None, state(1, local=False), None)
    assert "another process" in callback.summary().problem


def test_only_the_training_loss_of_the_world_s_first_process_gets_scalars() -> None:
    monitor = FakeMonitor([gpu(5, allocated=2.0, reserved=4.5)])
    busy = {"utilization": 0.75, "power_w": 250.0, "temperature_c": math.nan}
    monitor.now = activity(busy, cpu_share=0.5, tree_cpu_share=0.25, workers_rss_bytes=2.0 * GIB)
    callback = steps(monitor, 1)
    logs = {"loss": 1.0}
    callback.on_log(None, state(1), None, logs=logs)
    assert logs == {
        "loss": 1.0,
        "asrconfig/gpu0_memory_used_gib": 5.0,
        "asrconfig/gpu0_memory_fraction": 0.5,
        "asrconfig/gpu0_headroom_gib": 7.5,
        "asrconfig/gpu0_torch_allocated_gib": 2.0,
        "asrconfig/gpu0_torch_reserved_gib": 4.5,
        "asrconfig/gpu0_utilization": 0.75,
        "asrconfig/gpu0_power_w": 250.0,
        "asrconfig/host_memory_used_gib": 25.0,
        "asrconfig/host_memory_fraction": 0.25,
        "asrconfig/host_cpu_utilization": 0.5,
        "asrconfig/training_cpu_utilization": 0.25,
        "asrconfig/workers_rss_gib": 2.0,
    }
    for untouched in ({"eval_loss": 1.0}, {"train_loss": 1.0}, {}):
        same = dict(untouched)
        callback.on_log(None, state(1), None, logs=same)
        assert same == untouched
    other = {"loss": 1.0}
    callback.on_log(None, state(1, world=False), None, logs=other)
    assert other == {"loss": 1.0}


def test_scalars_that_fail_are_left_out_and_said_once(said: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monitor = FakeMonitor([gpu(5)])
    callback = steps(monitor, 1)
    monkeypatch.setattr(monitor, "activity", lambda: 1 / 0)
    for _ in range(2):
        logs = {"loss": 1.0}
        callback.on_log(None, state(1), None, logs=logs)
        assert logs == {"loss": 1.0}
    callback.on_step_end(None, state(2), None)
    assert said == ["memory is not logged from here on: ZeroDivisionError: division by zero"]
    assert len(monitor.steps) == 2, "all else goes on"


@pytest.mark.parametrize(
    "options",
    [
        {"warn_at": 0.0},
        {"warn_at": -0.5},
        {"warn_at": 0.96},
        {"warn_at": 0.95},
        {"clean_at": 1.01},
        {"warn_at": math.nan},
        {"clean_at": math.inf},
        {"hysteresis": -0.01},
        {"hysteresis": 0.9},
        {"hysteresis": math.nan},
        {"warn_at": "0.9"},
        {"warn_at": True},
        {"interval_ms": math.nan},
        {"cooldown_s": -1.0},
        {"cooldown_s": math.nan},
        {"progress": 1},
        {"panel": "yes"},
        {"run_file": None},
        {"memory": 15},
    ],
)
def test_refused_options(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        AdaptiveMemoryCallback(**options)
    assert next(iter(options)) in caught.value.message
    assert caught.value.hint


def test_the_warning_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="asrconfig_go"):
        steps(FakeMonitor([gpu(9.2)]), 1)
    assert [r.getMessage() for r in caplog.records] == ["memory: GPU 0 9.2 of 10.0 GiB (92%) is over 90%"]


def test_cleaning_up_collects_cycles_and_empties_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(gc, "collect", lambda: done.append("collect"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: done.append("empty"))
    steps(FakeMonitor([gpu(9.6)]), 1)
    assert done == ["collect", "empty"]


@pytest.mark.parametrize("before", [True, False])
def test_cudnn_benchmark_is_set_and_put_back(monkeypatch: pytest.MonkeyPatch, before: bool) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", before)
    callback = AdaptiveMemoryCallback(make_plan(cudnn_benchmark=True), monitor=makes(FakeMonitor()))
    for _ in range(2):  # the second begin must not take the plan's value for the user's
        callback.on_train_begin(None, state(), None)
    assert torch.backends.cudnn.benchmark is True
    callback.on_train_end(None, state(), None)
    assert torch.backends.cudnn.benchmark is before


class Recorder(TrainerCallback):  # type: ignore[misc]
    """A reporter: registered before user callbacks."""

    def __init__(self) -> None:
        self.logs: list[dict[str, Any]] = []

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        self.logs.append(dict(logs))


def test_reporters_get_the_scalars_whichever_way_it_is_added(tmp_path: Path) -> None:
    def attach(trainer: Any, callback: AdaptiveMemoryCallback) -> None:
        callback.attach(trainer)
        callback.attach(trainer)

    ways = [None, lambda trainer, callback: trainer.add_callback(callback), attach]
    for add in ways:
        callback = AdaptiveMemoryCallback(monitor=makes(FakeMonitor([gpu(5.0)])))
        recorder = Recorder()
        trainer = tiny_trainer(tmp_path, callbacks=[recorder] if add else [recorder, callback], logging_steps=2)
        if add:
            add(trainer, callback)
        order = [c for c in trainer.callback_handler.callbacks if c is not callback]
        trainer.train()
        assert trainer.callback_handler.callbacks[: 1 + len(order)] == [callback, *order]
        training = [logs for logs in recorder.logs if "loss" in logs]
        assert len(training) == 2
        assert all(logs["asrconfig/gpu0_memory_fraction"] == 0.5 for logs in training)
        assert not any("asrconfig" in key for logs in recorder.logs if "loss" not in logs for key in logs)


def test_tensorboard_files_hold_the_scalars_at_their_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "curves"))
    callback = AdaptiveMemoryCallback(monitor=makes(FakeMonitor([gpu(2.5)])))
    trainer = tiny_trainer(
        tmp_path, callbacks=[callback], logging_steps=2, report_to="tensorboard", eval_strategy="epoch"
    )
    trainer.train()
    (events,) = tmp_path.rglob("events.out.tfevents.*")
    curves = accumulator.EventAccumulator(str(events.parent))
    curves.Reload()
    found = {tag: [(e.step, round(e.value, 4)) for e in curves.Scalars(tag)] for tag in curves.Tags()["scalars"]}
    assert found["train/asrconfig/gpu0_memory_fraction"] == [(2, 0.25), (4, 0.25)]
    assert found["train/asrconfig/gpu0_memory_used_gib"] == [(2, 2.5), (4, 2.5)]
    assert found["train/asrconfig/host_memory_fraction"] == [(2, 0.25), (4, 0.25)]
    assert not any(tag.startswith("eval") and "asrconfig" in tag for tag in found)


# From here on the real monitor.


def test_a_training_with_the_real_monitor_and_forked_loader_workers(tmp_path: Path) -> None:
    callback = AdaptiveMemoryCallback(interval_ms=5)
    trainer = tiny_trainer(tmp_path, callbacks=[callback], dataloader_num_workers=2, num_train_epochs=2)
    trainer.train()
    summary = callback.summary()
    assert summary.problem == ""
    assert summary.samples > 0
    assert summary.host_peak is not None and summary.host_total is not None
    assert 0 < summary.host_peak <= summary.host_total
    assert isinstance(callback._monitor, MemoryMonitor) and not callback._monitor.running


def test_a_copied_callback_has_no_sampler_of_its_own() -> None:
    callback = AdaptiveMemoryCallback()
    callback.on_train_begin(None, state(), None)
    other = copy.deepcopy(callback)
    other.on_step_end(None, state(1), None)
    other.stop()
    assert callback._monitor is not None and callback._monitor.running
    callback.stop()


def test_a_with_block_ends_sampling_after_an_exception(tmp_path: Path) -> None:
    class Broken(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            raise ValueError("on purpose")

    with pytest.raises(ValueError, match="on purpose"), AdaptiveMemoryCallback() as callback:
        tiny_trainer(tmp_path, callbacks=[callback, Broken()]).train()
    assert callback._monitor is not None and not callback._monitor.running
    assert callback.summary().samples > 0


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.usefixtures("heard_ctrl_c")
def test_ctrl_c_ends_a_training_process_at_once(tmp_path: Path) -> None:
    """KeyboardInterrupt reaches no callback; the process must end all the same, threads of the library included."""
    script = textwrap.dedent(f"""
        import time
        from pathlib import Path
        from transformers import TrainerCallback
        from asrconfig_go import AdaptiveMemoryCallback
        from tiny_training import tiny_trainer

        class Slow(TrainerCallback):
            def on_step_end(self, *args, **kwargs):
                print("step", flush=True)
                time.sleep(20)

        tiny_trainer(Path({str(tmp_path)!r}), callbacks=[AdaptiveMemoryCallback(), Slow()]).train()
    """)
    path = os.pathsep.join([str(PYTHON), str(HELPERS)])
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        while process.stdout.readline().strip() != "step":
            assert process.poll() is None, process.communicate()[1]
        process.send_signal(signal.SIGINT)
        asked = time.monotonic()
        _, errors = process.communicate(timeout=15)
        assert time.monotonic() - asked < 10
        assert process.returncode == -signal.SIGINT
        assert errors.rstrip().endswith("KeyboardInterrupt")
    finally:
        process.kill()
