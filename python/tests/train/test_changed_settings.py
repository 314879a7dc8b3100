"""A run that is resumed with other settings: each is named with both values, what cannot go on is refused by name."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import PretrainedConfig

from asrconfig_go import ASRConfigManager
from asrconfig_go.errors import InvalidArgumentError
from asrconfig_go.guard.training_report import Change
from asrconfig_go.plan.plan_record import BATCH_FIELDS
from asrconfig_go.plan.training_arguments import REPORTED
from asrconfig_go.train.guarded_training import GuardedTraining
from asrconfig_go.train.resume import check_model, model_record, use_run_batch
from asrconfig_go.train.run_record import ModelRecord
from disturbed_runs import SAVING, Stopped, assert_same_run, interrupted, once_at, prepared, trained, weights
from tiny_training import Regression, Streamed, tiny_trainer


@pytest.mark.parametrize(
    ("settings", "changes"),
    [
        ({"learning_rate": 0.5}, ["learning_rate was 0.05, is 0.5"]),
        ({"seed": 7}, ["seed was 42, is 7"]),
        ({"weight_decay": 0.1, "optim": "adamw_torch"}, ["weight_decay was 0.0, is 0.1"]),
        ({"lr_scheduler_type": "cosine"}, ["lr_scheduler_type was 'linear', is 'cosine'"]),
        ({"num_train_epochs": 2}, ["num_train_epochs was 3, is 2"]),
        ({}, []),
    ],
)
def test_a_finished_run_says_so_and_what_is_another(
    tmp_path: Path, settings: dict[str, Any], changes: list[str],
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    both: dict[str, Any] = {"save_strategy": "steps", "save_steps": 4, "optim": "adamw_torch"}
    undisturbed = trained(tmp_path, **both)
    caplog.clear()
    trainer, manager = prepared(tmp_path, **{**both, **settings}), ASRConfigManager()
    with caplog.at_level(logging.WARNING, "asrconfig_go"):
        manager.train(trainer, resume=True)
    report = manager.report
    assert report is not None and report.finished
    assert torch.equal(weights(trainer), weights(undisturbed))
    assert [str(c).split(":")[0] for c in report.changes] == changes
    printed = capsys.readouterr().out
    assert "12 of 12 steps in " in printed
    for where in (caplog.text, printed):
        assert "call manager.train(trainer, resume=False)" in where
        assert "choose another output_dir" in where
        assert all(change in where for change in changes)


def test_settings_that_changed_on_the_way(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What is said of each is what happens: the checkpoint's learning rate stays, the clipping is the new one."""
    undisturbed = trained(tmp_path / "whole", **SAVING)
    interrupted(tmp_path / "run", 5)
    with caplog.at_level(logging.WARNING, "asrconfig_go"):
        changed: dict[str, Any] = {"learning_rate": 0.5, "weight_decay": 0.3, "seed": 3}
        resumed = trained(tmp_path / "run", resume=True, **SAVING, **changed)
    assert not resumed.report.finished
    assert {c.name: c.in_force for c in resumed.report.changes} == dict.fromkeys(changed, False)
    assert "learning_rate was 0.05, is 0.5: the run's stays in effect" in caplog.text
    assert resumed.seen.rates == {step: rate for step, rate in undisturbed.seen.rates.items() if step > 3}
    assert resumed.seen.samples == {step: samples for step, samples in undisturbed.seen.samples.items() if step > 3}
    assert torch.allclose(weights(resumed), weights(undisturbed), atol=1e-6)

    interrupted(tmp_path / "clipped", 5)
    resumed = trained(tmp_path / "clipped", resume=True, **SAVING, max_grad_norm=1e-3)
    assert resumed.report.changes == (Change("max_grad_norm", 1.0, 1e-3, True),)
    assert "max_grad_norm was 1.0, is 0.001: in effect from here on" in repr(resumed.report)
    assert not torch.allclose(weights(resumed), weights(undisturbed), atol=1e-6)


def test_the_model_s_config_is_compared(tmp_path: Path) -> None:
    def model(dropout: float) -> Any:
        torch.manual_seed(0)
        made = Regression()
        made.config = PretrainedConfig(hidden_dropout=dropout)
        return made

    interrupted(tmp_path, 5, model=model(0.1))
    resumed = trained(tmp_path, resume=True, model=model(0.2), **SAVING)
    assert resumed.report.changes == (Change("config.hidden_dropout", 0.1, 0.2, True),)


@pytest.mark.parametrize("kind", ["linear", "cosine", "constant_with_warmup"])
def test_more_steps_follow_the_new_schedule_from_the_first_one(
    tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The Trainer alone makes the first of them with the old schedule's last learning rate, which is 0."""
    settings = {**SAVING, "lr_scheduler_type": kind, "event": "on_step_begin", "fail": lambda: None}
    longer = trained(tmp_path / "longer", **settings, num_train_epochs=5)
    trained(tmp_path / "run", **settings)
    used: list[float] = []
    trainer: Any = None
    with caplog.at_level(logging.WARNING, "asrconfig_go"):
        more = {**settings, "num_train_epochs": 5, "fail": lambda: used.append(trainer.optimizer.param_groups[0]["lr"])}
        trainer = prepared(tmp_path / "run", **more)
        ASRConfigManager().train(trainer, resume=True)
    assert trainer.state.global_step == 20
    wanted = [longer.seen.rates[step] for step in range(12, 20)]  # noted behind a step: the rate of the next
    assert used == pytest.approx(wanted)
    assert used[0] > 0
    message = (
        f"20 optimizer steps are planned, 12 when the run began: from step 12 on the learning rate follows the {kind}"
    )
    assert message in caplog.text
    logged = [entry["learning_rate"] for entry in trainer.state.log_history if "learning_rate" in entry]
    assert logged[-8:] == pytest.approx(wanted)
    assert f"{wanted[0]:.3g} there instead of {0.05 if kind == 'constant_with_warmup' else 0:.3g}" in caplog.text
    caplog.clear()
    again = trained(tmp_path / "run", resume=True, **SAVING, lr_scheduler_type=kind, num_train_epochs=5)
    assert again.report.finished and not again.report.changes, "the new schedule is the run's now"


class Wider(Regression):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = torch.nn.Linear(6, 9), torch.nn.Linear(9, 1)


class Frozen(Regression):
    def __init__(self) -> None:
        super().__init__()
        self.first.weight.requires_grad_(False)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model": lambda: Wider()}, "the model is another than that of the run in .*: Wider, 73 parameters"),
        ({"model": lambda: Frozen()}, "Frozen, 65 parameters, 17 of them trained; the run's: Regression, 65 param"),
        ({"samples": 80}, "train_dataset has 80 rows, that of the run in .* was recorded with 64"),
        ({"optim": "sgd"}, "optim = 'sgd' cannot continue with the state of the run in .*, whose optimizer is 'adamw"),
    ],
)
@pytest.mark.parametrize("finished", [False, True])
def test_what_cannot_go_on_is_refused_before_anything_is_loaded(
    tmp_path: Path, settings: dict[str, Any], message: str, finished: bool
) -> None:
    if finished:
        trained(tmp_path, **SAVING)
    else:
        interrupted(tmp_path, 5)
    now = {name: value() if callable(value) else value for name, value in settings.items()}
    trainer = prepared(tmp_path, **{**SAVING, **now})
    before = weights(trainer).clone()
    with pytest.raises(InvalidArgumentError, match=message) as caught:
        ASRConfigManager().train(trainer, resume=True)
    assert str(tmp_path) in caught.value.message
    assert "manager.train(trainer, resume=False)" in caught.value.hint
    assert torch.equal(weights(trainer), before)
    assert trainer.seen.begins == 0


@pytest.mark.parametrize(
    "settings",
    [
        {"per_device_train_batch_size": 8},
        {"learning_rate": 0.5},
        {"samples": 80},
        {"optim": "sgd"},
    ],
)
def test_a_run_that_saved_nothing_begins_anew_with_other_settings(tmp_path: Path, settings: dict[str, Any]) -> None:
    """Stopped to change a setting, before its first checkpoint: the cell is run again with the new one."""
    undisturbed = trained(tmp_path / "whole", **SAVING, **settings)
    trained(tmp_path / "run", **SAVING, seed=5)
    interrupted(tmp_path / "run", 2)
    resumed = trained(tmp_path / "run", resume=True, **SAVING, **settings)
    assert_same_run(resumed, undisturbed)
    assert resumed.report.changes == ()
    assert not resumed.report.resumed_from, "those that are there are the earlier run's"


def test_a_kept_batch_is_no_difference_from_the_plan(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    interrupted(tmp_path, 5)
    trainer = prepared(tmp_path, **SAVING, per_device_train_batch_size=8)
    use_run_batch(trainer, resume=True)
    assert "effective batch of 16 is kept, overriding args, which a new run in another output_dir takes" in caplog.text
    assert (trainer.args.per_device_train_batch_size, trainer.args.gradient_accumulation_steps) == (8, 2)
    assert {*BATCH_FIELDS} <= {*getattr(trainer.args, REPORTED)[1]}


def test_another_vocabulary_is_named(tmp_path: Path) -> None:
    def record(words: int) -> ModelRecord:
        model = Regression()
        model.config = PretrainedConfig(vocab_size=words)
        return model_record(model)

    check_model(record(32), record(32), tmp_path)
    renamed = dataclasses.replace(record(40), shapes="")
    with pytest.raises(InvalidArgumentError, match=r"Regression, 40 tokens.*the run's: Regression, 32 tokens"):
        check_model(record(32), renamed, tmp_path)


def test_model_init_and_the_same_settings_change_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def trainer() -> Any:
        return tiny_trainer(tmp_path, samples=64, model_init=lambda: Regression(), **SAVING, max_steps=6)

    ASRConfigManager().train(trainer())
    manager = ASRConfigManager()
    manager.train(trainer(), resume=True)
    assert manager.report is not None and manager.report.changes == ()
    assert "was" not in [record.message.split()[1] for record in caplog.records]


def test_a_stream_s_next_epoch_and_other_workers(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The Trainer cannot go back into an epoch of a stream that is not the first, and the order follows the workers."""

    def run(stop: int, workers: int) -> Any:
        trainer = prepared(tmp_path, once_at(stop, Stopped()), event="on_step_end", max_steps=9, **SAVING)
        trainer.train_dataset, trainer.args.dataloader_num_workers = Streamed(64), workers
        training = GuardedTraining(trainer, resume=True)
        with contextlib.suppress(Stopped), caplog.at_level(logging.WARNING, "asrconfig_go"):
            training.train()
        return training.report()

    run(5, workers=2)
    run(4, workers=1)
    assert "dataloader_num_workers was 2, is 1: in effect from here on" in caplog.text
    assert "the stream had ended" not in caplog.text
    assert run(99, workers=1).changes == ()
    assert "the stream had ended and begun again by step 4: at step 6" in caplog.text
