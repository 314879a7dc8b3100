"""``save_by`` stops a training before its deadline, ``profile`` records its steps, and both leave it the same."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers.trainer_callback import TrainerCallback

from asrconfig_go import ASRConfigManager
from asrconfig_go.errors import InvalidArgumentError
from asrconfig_go.train import train_options
from asrconfig_go.train.checkpoints import newest_complete
from asrconfig_go.train.guarded_training import GuardedTraining
from asrconfig_go.train.train_options import deadline_of
from disturbed_runs import assert_same_run, once_at, prepared, trained, weights
from tiny_training import tiny_trainer

NOW = datetime.fromisoformat("2026-03-01T17:50+02:00")


@pytest.mark.parametrize(
    ("save_by", "moment"),
    [
        ("11h30m", "2026-03-02T05:20+02:00"),
        ("90m", "2026-03-01T19:20+02:00"),
        ("23:45", "2026-03-01T23:45+02:00"),
        ("2026-03-02T06:30+00:00", "2026-03-02T06:30+00:00"),
        ("2026-03-02T06:30Z", "2026-03-02T06:30+00:00"),
        ("2026-03-02 06:30", datetime(2026, 3, 2, 6, 30).astimezone().isoformat()),
    ],
)
def test_the_forms_of_a_deadline(save_by: str, moment: str) -> None:
    assert deadline_of(save_by, NOW) == datetime.fromisoformat(moment)


@pytest.mark.parametrize(
    ("save_by", "message", "hint"),
    [
        ("17:45", "save_by = '17:45' has passed: it is 2026-03-01 17:50", 'pass "2026-03-02T17:45" for tomorrow'),
        ("2026-02-28T06:30+00:00", "has passed", "11h30m"),
        ("25:00", "is not a time or duration", "17:45"),
        ("999999999999999h", "is not a time or duration", "17:45"),
        ("", "neither a duration nor a moment", "11h30m"),
        ("half past five", "neither a duration nor a moment", "11h30m"),
        (3600, "save_by = 3600 is not a text", "11h30m"),
    ],
)
def test_deadlines_that_are_refused_by_name(save_by: Any, message: str, hint: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        deadline_of(save_by, NOW)
    assert message in caught.value.message and hint in caught.value.hint


class Clock(TrainerCallback):  # type: ignore[misc]
    """Time that passes in steps, evaluations and saves alone."""

    def __init__(self, **takes: float) -> None:
        self.now, self.takes = 1e9, takes
        self.saved_at = self.now

    def time(self) -> float:
        return self.now

    def on_step_begin(self, *_: Any, **kwargs: Any) -> None:
        self.now += self.takes.get("step", 0.0)

    def on_evaluate(self, *_: Any, **kwargs: Any) -> None:
        self.now += self.takes.get("evaluation", 0.0)

    def on_save(self, *_: Any, **kwargs: Any) -> None:
        self.now += self.takes.get("save", 0.0)
        self.saved_at = self.now


Run = Callable[..., tuple[Any, Any, Clock]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Trains under a made-up clock, with ``left`` seconds to the deadline; the trainer, its report and the clock."""

    def train(
        seconds: float | None, *, folder: str = "out", resume: bool = False, takes: Any = None, **settings: Any
    ) -> Any:
        clock = Clock(**(takes or {"step": 10.0, "save": 2.0}))
        monkeypatch.setattr(time, "time", clock.time)
        trainer = prepared(tmp_path / folder, callbacks=[clock], **settings)
        save_by = None
        if seconds is not None:
            save_by = (datetime.fromtimestamp(clock.now).astimezone() + timedelta(seconds=seconds)).isoformat()
            monkeypatch.setattr(train_options, "datetime", _at(clock.now))
        training = GuardedTraining(trainer, resume=resume, save_by=save_by)
        training.train()
        return trainer, training.report(), clock

    return train


def _at(now: float) -> Any:
    class Moment(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime.fromtimestamp(now, tz)

    return Moment


@pytest.mark.parametrize(
    ("save_s", "settings"),
    [
        (2.0, {}),  # as long as is estimated for files so small
        (20.0, {"save_strategy": "steps", "save_steps": 2, "eval_strategy": "steps", "eval_steps": 3}),
    ],
)
def test_it_saves_and_stops_in_time_and_the_resumed_run_equals_an_undisturbed_one(
    save_s: float, settings: dict[str, Any], run: Run, tmp_path: Path
) -> None:
    undisturbed, _, _ = run(None, folder="whole", **settings)
    trainer, report, clock = run(100.0, takes={"step": 10.0, "save": save_s}, **settings)
    step = trainer.state.global_step
    assert 0 < step < undisturbed.state.global_step == 12
    assert clock.saved_at == clock.now <= 1e9 + 100, "the checkpoint is complete before the deadline"
    assert newest_complete(tmp_path / "out") == tmp_path / "out" / f"checkpoint-{step}"
    assert f"saved {tmp_path / 'out' / f'checkpoint-{step}'} and stopped for save_by" in repr(report)
    assert "resume=True continues" in repr(report) and not report.error

    resumed, report, _ = run(1e6, resume=True, **settings)
    assert report.resumed_from.endswith(f"checkpoint-{step}") and report.stopped == ""
    resumed.seen.samples = {**trainer.seen.samples, **resumed.seen.samples}
    resumed.seen.rates = {**trainer.seen.rates, **resumed.seen.rates}
    assert_same_run(resumed, undisturbed)


def test_a_measured_save_counts_in_place_of_the_estimate(run: Run) -> None:
    saves = {"save_strategy": "steps", "save_steps": 1}
    slow, _, clock = run(400.0, folder="slow", takes={"step": 1.0, "save": 100.0}, **saves)
    assert slow.state.global_step == 3, "its own save, a step and one more save would no longer fit"
    assert clock.now <= 1e9 + 400
    fast, report, _ = run(400.0, folder="fast", takes={"step": 1.0, "save": 1.0}, **saves)
    assert fast.state.global_step == 12 and report.stopped == ""


def test_an_evaluation_that_is_due_has_its_time(run: Run) -> None:
    takes = {"step": 10.0, "evaluation": 100.0, "save": 1.0}
    trainer, report, clock = run(400.0, takes=takes, eval_strategy="steps", eval_steps=2)
    assert report.stopped and clock.now <= 1e9 + 400
    evaluated = [entry["step"] for entry in trainer.state.log_history if "eval_loss" in entry]
    assert evaluated[-1] == trainer.state.global_step == 6, "its own evaluation is not left out"


def test_it_saves_where_only_the_best_checkpoints_are_kept(run: Run, tmp_path: Path) -> None:
    settings = {"eval_strategy": "steps", "eval_steps": 1, "metric_for_best_model": "eval_loss"}
    try:
        trainer, report, _ = run(100.0, save_strategy="best", **settings)
    except ValueError as error:
        pytest.skip(f"this transformers has no such strategy: {error}")
    assert report.stopped
    assert newest_complete(tmp_path / "out") == tmp_path / "out" / f"checkpoint-{trainer.state.global_step}"


def test_a_training_that_ends_before_its_deadline_is_left_alone(run: Run, tmp_path: Path) -> None:
    trainer, report, _ = run(1e6)
    assert (report.stopped, trainer.state.global_step) == ("", 12)
    assert newest_complete(tmp_path / "out") is None
    assert not any(type(callback).__name__ == "DeadlineCallback" for callback in trainer.callback_handler.callbacks)


def recorded(trace: str, prefix: str = "ProfilerStep#") -> list[str]:
    """The spans of a trace whose names begin so, as they followed each other."""
    events = [e for e in json.loads(Path(trace).read_text())["traceEvents"] if e.get("ph") == "X"]
    return [e["name"] for e in sorted(events, key=lambda e: float(e["ts"])) if e["name"].startswith(prefix)]


def test_the_steps_behind_the_warm_up_are_recorded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain = tiny_trainer(tmp_path / "plain", num_train_epochs=2)
    ASRConfigManager().train(plain, verbose=False)
    trainer = tiny_trainer(tmp_path / "profiled", num_train_epochs=2)
    manager = ASRConfigManager()
    manager.train(trainer, profile=3)
    assert manager.report is not None
    trace, table = manager.report.profile
    assert Path(trace) == tmp_path / "profiled/asrconfig_profile.pt.trace.json"
    assert recorded(trace) == ["ProfilerStep#3", "ProfilerStep#4", "ProfilerStep#5"]
    assert len(recorded(trace, "Optimizer.step")) == 3
    text = Path(table).read_text()
    assert "Self CPU" in text and "aten::addmm" in text
    assert f"profile for ui.perfetto.dev: {trace}; by operator: {table}" in capsys.readouterr().out
    assert torch.equal(weights(plain), weights(trainer))
    assert not any(isinstance(callback, train_options.StepProfile) for callback in trainer.callback_handler.callbacks)


@pytest.mark.parametrize(
    ("profile", "message", "hint"),
    [
        (0, "profile = 0 is not 1 to 20 optimizer steps", "3 steps"),
        (-1, "profile = -1 is not 1 to 20 optimizer steps", "3 steps"),
        (21, "profile = 21 is not 1 to 20 optimizer steps", "3 steps"),
        (True, "profile = True is not a whole number", "whole number"),
        (2, "profile = 2 needs 5 optimizer steps, the first 3 to warm up, and 4 are left", "fewer steps"),
    ],
)
def test_refused_numbers_of_steps(tmp_path: Path, profile: Any, message: str, hint: str) -> None:
    trainer = tiny_trainer(tmp_path)
    manager = ASRConfigManager()
    with pytest.raises(InvalidArgumentError) as caught:
        manager.train(trainer, profile=profile, verbose=False)
    assert message in caught.value.message and hint in caught.value.hint
    assert trainer.state.global_step == 0
    manager.train(trainer, profile=1, verbose=False)  # nothing is left behind
    assert manager.report is not None and len(manager.report.profile) == 2


def test_an_interrupted_recording_is_written(tmp_path: Path) -> None:
    class Stop(TrainerCallback):  # type: ignore[misc]
        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step == 4:
                raise KeyboardInterrupt

    manager = ASRConfigManager()
    with pytest.raises(KeyboardInterrupt):
        manager.train(tiny_trainer(tmp_path, num_train_epochs=2, callbacks=[Stop()]), profile=3, verbose=False)
    assert manager.report is not None
    assert recorded(manager.report.profile[0])[0] == "ProfilerStep#3"


def test_a_restarted_training_is_recorded_again(tmp_path: Path) -> None:
    disturbed = prepared(tmp_path / "disturbed", once_at(4), event="on_step_end")
    run = GuardedTraining(disturbed, profile=2)
    run.train()
    assert len(run.report().restarts) == 1
    assert_same_run(disturbed, trained(tmp_path / "whole"))
    assert recorded(run.report().profile[0]) == ["ProfilerStep#3", "ProfilerStep#4"]


def test_a_profile_that_cannot_be_written_does_not_end_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(train_options, "write_profile", full)
    manager = ASRConfigManager()
    with caplog.at_level(logging.WARNING, "asrconfig_go"):
        manager.train(tiny_trainer(tmp_path, num_train_epochs=2), profile=1, verbose=False)
    assert manager.report is not None and manager.report.steps == 8 and manager.report.profile == ()
    assert "the profile was not written: [Errno 28] No space left on device" in caplog.text
