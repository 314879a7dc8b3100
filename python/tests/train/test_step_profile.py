"""Steps recorded by PyTorch's profiler: which, where, refused numbers, and that the training stays the same."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers.trainer_callback import TrainerCallback

from asrconfig_go import ASRConfigManager
from asrconfig_go.errors import InvalidArgumentError
from asrconfig_go.train import train_options
from asrconfig_go.train.guarded_training import GuardedTraining
from disturbed_runs import assert_same_run, once_at, prepared, trained, weights
from tiny_training import tiny_trainer


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
