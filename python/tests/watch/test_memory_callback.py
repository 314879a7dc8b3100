"""AdaptiveMemoryCallback: what it does at which share of memory, what reporters see, and that the sampler ends."""

from __future__ import annotations

import copy
import gc
import math
from pathlib import Path
from typing import Any

import pytest

from asrconfig_go.errors import InvalidArgumentError, LibraryError

pytest.importorskip("transformers")
torch = pytest.importorskip("torch")

from transformers.trainer_callback import TrainerCallback, TrainerState

from asrconfig_go.watch import alerts, callback as callback_module, watch, watch_setup
from asrconfig_go.watch.callback import AdaptiveMemoryCallback
from tiny_training import tiny_trainer
from watching_fakes import GIB, FakeMonitor, activity, alert, gpu, makes


def state(step: int = 0, *, local: bool = True, world: bool = True) -> TrainerState:
    return TrainerState(global_step=step, max_steps=100, is_local_process_zero=local, is_world_process_zero=world)


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Warnings and clean-ups in their order."""
    logged: list[str] = []
    for module in (watch, callback_module, alerts, watch_setup):
        monkeypatch.setattr(module, "say", lambda message, level=0: logged.append(message))
    monkeypatch.setattr(watch, "give_back_memory", lambda: logged.append("clean"))
    return logged


def steps(monitor: FakeMonitor, number: int, **options: Any) -> AdaptiveMemoryCallback:
    """A callback that has seen ``number`` steps of a training."""
    options = {"interval_ms": 1e-6, **options}  # else the steps are too short for all of them to be looked at
    callback = AdaptiveMemoryCallback(monitor=makes(monitor), **options)
    callback.on_train_begin(None, state(), None)
    for i in range(number):
        callback.on_step_end(None, state(i + 1), None)
    return callback


def test_what_the_monitor_decides_is_done(logged: list[str]) -> None:
    monitor = FakeMonitor([gpu(9.6)])
    monitor.warn(alert(1, "GPU 0 is over 90%"))
    monitor.clean_up = True
    callback = steps(monitor, 2, warn_at=0.8)
    assert logged == ["GPU 0 is over 90%", "clean", "clean"]
    assert monitor.limits[0] == {"warn_at": 0.8, "hysteresis": 0.05, "clean_at": 0.95, "cooldown_s": 60.0}
    summary = callback.summary()
    assert (summary.warnings, summary.clean_ups, summary.samples, summary.errors) == (1, 1, 7, 1)
    assert "1 warnings, 1 clean-ups, 1 failed of 7 samples" in str(summary)


def test_a_real_monitor_takes_the_limits(logged: list[str]) -> None:
    callback = AdaptiveMemoryCallback(warn_at=1e-6, clean_at=1e-5, hysteresis=0.0)
    with callback:
        callback.on_train_begin(None, state(), None)
        callback.on_step_end(None, state(1), None)
        summary = callback.summary()
    assert (summary.warnings, summary.clean_ups) == (1, 1), logged
    assert "is over 0%" in logged[0] and "unused cached memory is freed" in logged[1] and logged[2] == "clean"


def test_predictions_are_watched_too_and_told_apart(logged: list[str]) -> None:
    monitor = FakeMonitor([gpu(5), gpu(9.1)])
    callback = steps(monitor, 1)
    monitor.warn(alert(1, "memory is full"))
    callback.on_prediction_step(None, state(1), None)
    callback.on_evaluate(None, state(1), None)
    callback.on_save(None, state(1), None)
    assert logged == ["memory is full"]
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


def test_a_failing_monitor_never_stops_the_training(logged: list[str]) -> None:
    monitor = FakeMonitor([gpu(5)])
    callback = steps(monitor, 1)
    monitor.fail = LibraryError("the library panicked earlier")
    for i in range(3):
        callback.on_step_end(None, state(2 + i), None)
        callback.on_log(None, state(2 + i), None, logs={"loss": 1.0})
        callback.on_save(None, state(2 + i), None)
    callback.on_train_end(None, state(5), None)
    assert logged == ["memory is not watched: the library panicked earlier"]
    assert not monitor.running
    assert str(callback.summary()) == "memory was not watched: the library panicked earlier"

    def missing() -> Any:
        raise LibraryError("there is no library")

    callback = AdaptiveMemoryCallback(monitor=missing)
    callback.on_train_begin(None, state(), None)
    callback.on_step_end(None, state(1), None)
    callback.on_log(None, state(1), None, logs={"loss": 1.0})
    callback.on_train_end(None, state(1), None)
    assert logged[1:] == ["memory is not watched: there is no library"]
    assert "there is no library" in callback.summary().problem


def test_a_second_begin_goes_on_with_the_same_monitor(logged: list[str]) -> None:
    first, second = FakeMonitor([gpu(9.1), gpu(9.1), gpu(5)]), FakeMonitor([gpu(5)])
    first.warn(alert(1, "memory is full"))
    callback = AdaptiveMemoryCallback(monitor=makes(first, second))
    for i in range(2):
        callback.on_train_begin(None, state(i), None)
        callback.on_step_end(None, state(i + 1), None)
    assert (len(first.steps), logged) == (2, ["memory is full"])
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


def test_scalars_that_fail_are_left_out_and_said_once(logged: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monitor = FakeMonitor([gpu(5)])
    callback = steps(monitor, 1)
    monkeypatch.setattr(monitor, "read", lambda: 1 / 0)
    for _ in range(2):
        logs = {"loss": 1.0}
        callback.on_log(None, state(1), None, logs=logs)
        assert logs == {"loss": 1.0}
    callback.on_step_end(None, state(2), None)
    assert logged == ["memory is not logged from here on: ZeroDivisionError: division by zero"]
    assert len(monitor.steps) == 2, "all else goes on"


@pytest.mark.parametrize(
    "options",
    [
        *({"warn_at": value} for value in (0.0, 0.95, 0.96, math.nan, "0.9", True)),
        *({"hysteresis": value} for value in (-0.01, 0.9)),
        *({"clean_at": 1.01}, {"interval_ms": math.nan}, {"cooldown_s": -1.0}, {"panel": "yes"}, {"memory": 15}),
    ],
)
def test_refused_options(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        AdaptiveMemoryCallback(**options)
    assert next(iter(options)) in caught.value.message
    assert caught.value.hint


def test_cleaning_up_collects_cycles_and_empties_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(gc, "collect", lambda: done.append("collect"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: done.append("empty"))
    watch.give_back_memory()
    assert done == ["collect", "empty"]


class Recorder(TrainerCallback):  # type: ignore[misc]
    """A reporter: registered before user callbacks."""

    def __init__(self) -> None:
        self.logs: list[dict[str, Any]] = []

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        self.logs.append(dict(logs))


def test_reporters_get_the_scalars_whichever_way_it_is_added(tmp_path: Path) -> None:
    for later in (False, True):
        callback = AdaptiveMemoryCallback(monitor=makes(FakeMonitor([gpu(5.0)])))
        recorder = Recorder()
        trainer = tiny_trainer(tmp_path, callbacks=[recorder] if later else [recorder, callback], logging_steps=2)
        if later:
            trainer.add_callback(callback)
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
    scalars = {tag: [(e.step, round(e.value, 4)) for e in curves.Scalars(tag)] for tag in curves.Tags()["scalars"]}
    assert scalars["train/asrconfig/gpu0_memory_fraction"] == [(2, 0.25), (4, 0.25)]
    assert scalars["train/asrconfig/gpu0_memory_used_gib"] == [(2, 2.5), (4, 2.5)]
    assert scalars["train/asrconfig/host_memory_fraction"] == [(2, 0.25), (4, 0.25)]
    assert not any(tag.startswith("eval") and "asrconfig" in tag for tag in scalars)


# From here on the real monitor.


def test_a_copied_callback_has_no_sampler_of_its_own() -> None:
    callback = AdaptiveMemoryCallback()
    callback.on_train_begin(None, state(), None)
    other = copy.deepcopy(callback)
    other.on_step_end(None, state(1), None)
    other.stop()
    assert callback._monitor is not None and callback._monitor.running
    callback.stop()
