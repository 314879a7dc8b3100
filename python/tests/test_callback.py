"""AdaptiveMemoryCallback: what it does at which share of memory, what reporters see, and that the sampler ends."""

from __future__ import annotations

import copy
import logging
import math
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from asrconfig_go import InvalidArgumentError, LibraryError
from asrconfig_go.monitor import GPUMemory, MemoryMonitor, MemorySnapshot
from training_fixtures import make_plan

pytest.importorskip("transformers")
torch = pytest.importorskip("torch")

from transformers.trainer_callback import TrainerCallback  # noqa: E402

from asrconfig_go import callback as module  # noqa: E402
from asrconfig_go.callback import AdaptiveMemoryCallback  # noqa: E402
from tiny_training import tiny_trainer  # noqa: E402

GIB = 1 << 30
WORLD_ZERO = SimpleNamespace(is_local_process_zero=True, is_world_process_zero=True)


class Script:
    """A reader that gives scripted shares of a GPU of 10 GiB (None: no GPU) and of a host of 100 GiB."""

    def __init__(self, gpu: list[Any], host: list[float] | None = None) -> None:
        self.gpu, self.host, self.running, self.stops = gpu, host or [], True, 0
        self.share: float | None = None

    def gpu_fraction(self) -> float | None:
        self.share = self.gpu.pop(0)
        if isinstance(self.share, Exception):
            raise self.share
        return self.share

    def host_fraction(self) -> float | None:
        return self.host.pop(0) if self.host else None

    def read(self) -> MemorySnapshot:
        gpus = ()
        if isinstance(self.share, float):
            used = int(self.share * 10 * GIB)
            gpus = (GPUMemory(10 * GIB, used, 10 * GIB - used, used),)
        return MemorySnapshot(1.0, 7, 1, 100 * GIB, 25 * GIB, 30 * GIB, gpus)

    def stop(self) -> None:
        self.running, self.stops = False, self.stops + 1


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> list[str]:
    """Warnings and clean-ups in their order."""
    seen: list[str] = []
    monkeypatch.setattr(module, "_say", lambda message: seen.append(message))
    monkeypatch.setattr(module, "_give_back_memory", lambda: seen.append("clean"))
    return seen


def steps(script: Script, number: int, **options: Any) -> AdaptiveMemoryCallback:
    """A callback that has seen ``number`` steps of a training."""
    callback = AdaptiveMemoryCallback(monitor=lambda: script, **options)
    callback.on_train_begin(None, WORLD_ZERO, None)
    for _ in range(number):
        callback.on_step_end(None, WORLD_ZERO, None)
    return callback


def kinds(events: list[str]) -> list[str]:
    return ["clean" if event == "clean" else "warn" if "90%" in event else "announce" for event in events]


def test_once_per_crossing_with_hysteresis(events: list[str]) -> None:
    shares = [0.5, 0.89, 0.90, 0.93, 0.86, 0.91, 0.95, 0.99, 0.91, 0.95, 0.899, 0.95, 0.84, 0.97]
    callback = steps(Script(list(shares)), len(shares))
    #        at 0.90 | at 0.95             | at 0.95 after 0.899     | at 0.97 after 0.84
    assert kinds(events) == ["warn", "announce", "clean", "announce", "clean", "warn", "announce", "clean"]
    assert events[0] == "memory: GPU 0 9.0 of 10.0 GiB (90%) is over 90%"
    summary = callback.summary()
    assert (summary.warnings, summary.clean_ups, summary.samples, summary.errors) == (2, 3, 7, 1)
    assert "2 warnings, 3 clean-ups, 1 failed of 7 samples" in str(summary)


def test_without_hysteresis_every_crossing_counts(events: list[str]) -> None:
    steps(Script([0.91, 0.89, 0.91, 0.91]), 4, hysteresis=0.0)
    assert kinds(events) == ["warn", "warn"]


def test_the_host_is_watched_where_there_is_no_gpu(events: list[str]) -> None:
    steps(Script([None] * 3, [0.5, 0.96, 0.96]), 3)
    assert kinds(events) == ["warn", "announce", "clean"]
    assert "host 25.0 of 100.0 GiB" in events[0]


def test_nothing_is_done_about_unknown_memory(events: list[str]) -> None:
    steps(Script([None, None]), 2)
    assert events == []


def test_micro_batches_and_predictions_are_watched_too(events: list[str]) -> None:
    callback = steps(Script([0.91, 0.5, 0.91]), 1)
    callback.on_substep_end(None, WORLD_ZERO, None)
    callback.on_prediction_step(None, WORLD_ZERO, None)
    assert kinds(events) == ["warn", "warn"]


def test_a_failing_monitor_never_stops_the_training(events: list[str]) -> None:
    script = Script([0.5, LibraryError("the library panicked earlier")])
    callback = steps(script, 4)
    assert events == ["memory is not watched: the library panicked earlier"]
    assert script.stops == 1
    assert str(callback.summary()) == "memory was not watched: the library panicked earlier"

    def missing() -> Script:
        raise LibraryError("there is no library")

    callback = AdaptiveMemoryCallback(monitor=missing)
    callback.on_train_begin(None, WORLD_ZERO, None)
    callback.on_step_end(None, WORLD_ZERO, None)
    callback.on_log(None, WORLD_ZERO, None, logs={"loss": 1.0})
    assert events[1:] == ["memory is not watched: there is no library"]


def test_a_second_begin_goes_on_with_the_same_monitor(events: list[str]) -> None:
    made: list[Script] = []
    callback = AdaptiveMemoryCallback(monitor=lambda: made.append(Script([0.91, 0.91, 0.5])) or made[-1])
    callback.on_train_begin(None, WORLD_ZERO, None)
    callback.on_step_end(None, WORLD_ZERO, None)
    callback.on_train_begin(None, WORLD_ZERO, None)
    callback.on_step_end(None, WORLD_ZERO, None)
    assert (len(made), kinds(events)) == (1, ["warn"])
    callback.on_train_end(None, WORLD_ZERO, None)
    callback.stop()
    assert not made[0].running
    callback.on_train_begin(None, WORLD_ZERO, None)
    assert len(made) == 2
    assert callback.summary().warnings == 0


def test_only_the_first_process_of_a_node_samples() -> None:
    made: list[Script] = []
    callback = AdaptiveMemoryCallback(monitor=lambda: made.append(Script([])) or made[-1])
    callback.on_train_begin(None, SimpleNamespace(is_local_process_zero=False), None)
    callback.on_step_end(None, WORLD_ZERO, None)
    assert made == []


def test_only_the_training_loss_of_the_world_s_first_process_gets_scalars() -> None:
    callback = steps(Script([0.5]), 1)
    logs = {"loss": 1.0}
    callback.on_log(None, WORLD_ZERO, None, logs=logs)
    assert logs == {
        "loss": 1.0,
        "asrconfig/gpu0_memory_used_gib": 5.0,
        "asrconfig/gpu0_memory_fraction": 0.5,
        "asrconfig/host_memory_used_gib": 25.0,
        "asrconfig/host_memory_fraction": 0.25,
    }
    for untouched in ({"eval_loss": 1.0}, {"train_loss": 1.0}, {}):
        same = dict(untouched)
        callback.on_log(None, WORLD_ZERO, None, logs=same)
        assert same == untouched
    other = {"loss": 1.0}
    callback.on_log(None, SimpleNamespace(is_world_process_zero=False), None, logs=other)
    assert other == {"loss": 1.0}


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
    ],
)
def test_refused_options(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        AdaptiveMemoryCallback(**options)
    assert next(iter(options)) in caught.value.message
    assert caught.value.hint


def test_the_warning_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="asrconfig_go"):
        steps(Script([0.92]), 1)
    assert [r.getMessage() for r in caplog.records] == ["memory: GPU 0 9.2 of 10.0 GiB (92%) is over 90%"]


def test_cleaning_up_collects_cycles_and_empties_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(module.gc, "collect", lambda: done.append("collect"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: done.append("empty"))
    steps(Script([0.96]), 1)
    assert done == ["collect", "empty"]


@pytest.mark.parametrize("before", [True, False])
def test_cudnn_benchmark_is_set_and_put_back(monkeypatch: pytest.MonkeyPatch, before: bool) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", before)
    callback = AdaptiveMemoryCallback(make_plan(cudnn_benchmark=True), monitor=lambda: Script([]))
    for _ in range(2):  # the second begin must not take the plan's value for the user's
        callback.on_train_begin(None, WORLD_ZERO, None)
    assert torch.backends.cudnn.benchmark is True
    callback.on_train_end(None, WORLD_ZERO, None)
    assert torch.backends.cudnn.benchmark is before


class Recorder(TrainerCallback):
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
        callback = AdaptiveMemoryCallback(monitor=lambda: Script([0.5] * 100))
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
    callback = AdaptiveMemoryCallback(monitor=lambda: Script([0.25] * 100))
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
    callback.on_train_begin(None, WORLD_ZERO, None)
    other = copy.deepcopy(callback)
    other.on_step_end(None, WORLD_ZERO, None)
    other.stop()
    assert callback._monitor is not None and callback._monitor.running
    callback.stop()


def test_a_with_block_ends_sampling_after_an_exception(tmp_path: Path) -> None:
    class Broken(TrainerCallback):
        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            raise ValueError("on purpose")

    with pytest.raises(ValueError, match="on purpose"), AdaptiveMemoryCallback() as callback:
        tiny_trainer(tmp_path, callbacks=[callback, Broken()]).train()
    assert callback._monitor is not None and not callback._monitor.running
    assert callback.summary().samples > 0


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
    tests = Path(__file__).parent
    path = os.pathsep.join([str(tests.parent), str(tests)])
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
