"""Running out of memory where no step can be computed again: the run that goes on must be the undisturbed one."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import EarlyStoppingCallback, Trainer
from transformers.trainer_callback import TrainerCallback

from asrconfig_go import ASRConfigManager
from asrconfig_go.errors import InfeasiblePlanError, InvalidArgumentError
from asrconfig_go.guard import TrainingReport, attach
from asrconfig_go.guard.process_group import ProcessGroup
from asrconfig_go.guard.training_report import GuardEvent
from asrconfig_go.train import run_record
from asrconfig_go.train.guarded_training import GuardedTraining, _Incidents
from asrconfig_go.watch.callback import AdaptiveMemoryCallback
from disturbed_runs import (
    OutOfMemory,
    always,
    assert_same_run,
    limits,
    once_at,
    prepared,
    sizes,
    trained,
    weights,
)
from tiny_training import OUT_OF_MEMORY, Regression, tiny_trainer


def left_behind(output: Path) -> set[str]:
    """Files beside the checkpoints but the record, random numbers and the lock."""
    paths = {path.name for path in output.glob(".asrconfig*/*")}
    return {name for name in paths if not (name in ("run.json", "begin.json", "lock") or name.startswith("epoch-"))}


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("save_steps", [None, 3, 4])
@pytest.mark.parametrize(
    ("time", "event"), [(1, "on_pre_optimizer_step"), (6, "on_step_end"), (10, "on_pre_optimizer_step")]
)
def test_a_failure_anywhere_leaves_the_same_run(
    tmp_path: Path, time: int, event: str, save_steps: int | None, grouped: bool, group_by_length: dict[str, Any]
) -> None:
    """Four steps an epoch: the failure is in the first, second and third, the checkpoint inside or at its end."""
    settings: dict[str, Any] = group_by_length if grouped else {}
    if save_steps:
        settings = {**settings, "save_strategy": "steps", "save_steps": save_steps}
    undisturbed = trained(tmp_path / "whole", **settings)
    disturbed = trained(tmp_path / "disturbed", once_at(time), event=event, **settings)
    assert_same_run(disturbed, undisturbed)
    assert disturbed.seen.begins == 2
    assert sizes(disturbed) == (16, 1)
    assert limits(disturbed) == [(16, 8)]
    assert disturbed.report.limit_samples == 8
    assert not left_behind(tmp_path / "disturbed")


@pytest.fixture
def group_by_length() -> dict[str, Any]:
    """Settings for orders drawn from the global generator, which a resumed Trainer does not repeat by itself."""
    from tiny_training import Grouped

    return {"trainer_class": Grouped}


@pytest.mark.parametrize("failures", [1, 2, 3])
def test_the_limit_is_halved_by_every_restart(tmp_path: Path, failures: int) -> None:
    count = 0

    def fail() -> None:
        nonlocal count
        count += 1
        if count <= failures:
            raise OutOfMemory(OUT_OF_MEMORY)

    undisturbed = trained(tmp_path / "whole")
    disturbed = trained(tmp_path / "disturbed", fail)
    assert_same_run(disturbed, undisturbed)
    assert limits(disturbed) == [(16, 8), (8, 4), (4, 2)][:failures]
    assert max(len(batch) for batch in disturbed.model.seen) == 16 >> failures


def test_steps_are_the_guard_s_and_need_no_restart(tmp_path: Path) -> None:
    def hungry(model: Any, size: int) -> None:
        if size > 4:
            raise OutOfMemory(OUT_OF_MEMORY)

    undisturbed = trained(tmp_path / "whole")
    torch.manual_seed(0)
    model = Regression()
    model.fail = hungry
    trainer = trained(tmp_path / "run", model=model)
    assert torch.allclose(weights(trainer), weights(undisturbed), atol=1e-6)
    assert trainer.seen.begins == 1
    assert not trainer.report.restarts
    assert [(e.micro_batch_before, e.micro_batch_after) for e in trainer.report.events] == [(16, 8), (8, 4)]


def test_both_kinds_in_one_run(tmp_path: Path) -> None:
    """A limit that a step has led to is halved further, and what it left does not disturb the next attempt."""
    remaining = 1

    def hungry(model: Any, size: int) -> None:
        nonlocal remaining
        if size > 8 and remaining:
            remaining -= 1
            raise OutOfMemory(OUT_OF_MEMORY)

    undisturbed = trained(tmp_path / "whole", gradient_accumulation_steps=2)
    torch.manual_seed(0)
    model = Regression()
    model.fail = hungry
    trainer = trained(tmp_path / "run", once_at(3), model=model, gradient_accumulation_steps=2)
    assert torch.allclose(weights(trainer), weights(undisturbed), atol=1e-6)
    assert [(e.micro_batch_before, e.micro_batch_after) for e in trainer.report.events] == [(16, 8)]
    assert limits(trainer) == [(8, 4)]
    assert max(len(batch) for batch in model.seen) == 4


def test_the_pre_flight_is_the_guard_s(tmp_path: Path) -> None:
    def hungry(model: Any, size: int) -> None:
        if size > 8:
            raise OutOfMemory(OUT_OF_MEMORY)

    trainer = prepared(tmp_path)
    trainer.model.fail = hungry
    attach(trainer, preflight=True)
    run = GuardedTraining(trainer)
    run.train()
    assert [(e.global_step, e.place, e.micro_batch_before, e.micro_batch_after) for e in run.report().events] == [
        (0, "pre-flight", 16, 8)
    ]


def test_gives_up_after_three_retries(tmp_path: Path) -> None:
    with pytest.raises(InfeasiblePlanError, match="CUDA out of memory") as caught:
        trained(tmp_path, always())
    assert isinstance(caught.value.__cause__, OutOfMemory)
    assert "3 of 3 retries are used up at a micro-batch of 2" in caught.value.hint
    assert not left_behind(tmp_path)


def test_gives_up_when_one_sample_does_not_fit(tmp_path: Path) -> None:
    with pytest.raises(InfeasiblePlanError) as caught:
        trained(tmp_path, always(), per_device_train_batch_size=2, gradient_accumulation_steps=8)
    assert "the micro-batch is 1 already" in caught.value.hint


def test_without_retries(tmp_path: Path) -> None:
    with pytest.raises(InfeasiblePlanError):
        trained(tmp_path, once_at(1), max_retries=0)


def insatiable(output: Path) -> Any:
    """A trainer whose model fits with no batch."""

    def hungry(model: Any, size: int) -> None:
        raise OutOfMemory(OUT_OF_MEMORY)

    torch.manual_seed(0)
    model = Regression()
    model.fail = hungry
    return prepared(output, model=model)


def test_the_guard_s_last_word_is_final(tmp_path: Path) -> None:
    trainer = insatiable(tmp_path)
    attach(trainer, rule="mean")
    run = GuardedTraining(trainer)
    with pytest.raises(InfeasiblePlanError, match="step 0"):
        run.train()
    assert trainer.seen.begins == 1
    assert run.report().error.startswith("InfeasiblePlanError: step 0")


def test_a_loss_that_cannot_be_measured_ends_the_training_with_its_own_error(tmp_path: Path) -> None:
    """No attempt with a smaller limit would split its batches."""
    trainer = insatiable(tmp_path)
    run = GuardedTraining(trainer)
    with pytest.raises(OutOfMemory) as caught:
        run.train()
    assert trainer.seen.begins == 1
    assert run.report().error.startswith("OutOfMemoryError: CUDA out of memory") and not run.report().restarts
    if sys.version_info >= (3, 11):
        note, trace = caught.value.__notes__
        assert trace.startswith("it ran out of memory in\n")
        assert note.startswith("the step was not computed again: not even two clips fit")
        assert 'pass rule="mean"' in note


@pytest.mark.parametrize(
    ("error", "note"),
    [
        (MemoryError("[Errno 12] Cannot allocate memory"), "dataloader_num_workers"),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), "restart the process"),
        (ValueError("a mistake in the collator"), ""),
    ],
)
def test_other_failures_stay_what_they_are(tmp_path: Path, error: Exception, note: str) -> None:
    trainer = prepared(tmp_path, once_at(2, error))
    with pytest.raises(type(error)) as caught:
        GuardedTraining(trainer).train()
    assert caught.value is error
    assert trainer.seen.begins == 1
    if sys.version_info >= (3, 11):
        assert note in " ".join(getattr(error, "__notes__", []))
        assert bool(note) == hasattr(error, "__notes__")


def test_a_disguised_failure_is_retried_once(tmp_path: Path) -> None:
    disguised = RuntimeError("cuDNN error: CUDNN_STATUS_NOT_SUPPORTED")
    trainer = trained(tmp_path / "once", once_at(3, disguised))
    assert limits(trainer) == [(16, 8)]
    trainer = prepared(tmp_path / "always", always(disguised))
    with pytest.raises(RuntimeError, match="CUDNN_STATUS_NOT_SUPPORTED"):
        GuardedTraining(trainer).train()
    assert trainer.seen.begins == 2


def test_a_failure_in_evaluation_halves_the_evaluation_batch(tmp_path: Path) -> None:
    """The guard tries the loop once more; what fails in it again is ours."""
    count = 0

    def fail() -> None:
        nonlocal count
        count += 1
        if count in (2, 3):
            raise OutOfMemory(OUT_OF_MEMORY)

    class Heavy(Trainer):  # type: ignore[misc]
        sizes: tuple[int, ...] = ()

        def prediction_step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            self.sizes = (*self.sizes, len(inputs["x"]))
            return super().prediction_step(model, inputs, *args, **kwargs)

    def metrics(_: Any) -> dict[str, float]:
        fail()
        return {"score": 0.0}

    settings: dict[str, Any] = {"eval_strategy": "epoch", "per_device_eval_batch_size": 32}
    undisturbed = trained(tmp_path / "whole", **settings)
    disturbed = trained(tmp_path / "run", trainer_class=Heavy, compute_metrics=metrics, **settings)
    assert_same_run(disturbed, undisturbed)
    assert [(r.place, r.before, r.after) for r in disturbed.report.restarts] == [("evaluation", 32, 16)]
    assert disturbed.sizes[:6] == (32,) * 6
    assert disturbed.sizes[6:11] == (16, 16, 4, 1, 3), "how the losses of parts add up is measured once"
    assert set(disturbed.sizes[11:]) == {16}
    assert disturbed.report.limit_samples is None
    assert disturbed.args.per_device_eval_batch_size == 32


def test_early_stopping_counts_as_in_the_undisturbed_run(tmp_path: Path) -> None:
    def run(output: Path, fail: Any = None) -> Any:
        class Clock(TrainerCallback):  # type: ignore[misc]
            step = 0

            def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
                self.step = state.global_step

        clock = Clock()
        return trained(
            output,
            fail,
            callbacks=[clock, EarlyStoppingCallback(3)],
            compute_metrics=lambda _: {"score": float(clock.step)},  # best at the first evaluation, worse ever after
            metric_for_best_model="score",
            greater_is_better=False,
            load_best_model_at_end=True,
            eval_strategy="steps",
            eval_steps=2,
            save_strategy="steps",
            save_steps=4,
        )

    undisturbed = run(tmp_path / "whole")
    assert (
        8 <= undisturbed.state.global_step < undisturbed.state.max_steps
    )  # older versions start counting at the first save
    for time in (3, 7, 8):  # up to two evaluations are made twice, and count once
        assert_same_run(run(tmp_path / f"{time}", once_at(time)), undisturbed)


def test_dropped_samples_stay_the_same(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"samples": 60, "dataloader_drop_last": True}
    undisturbed = trained(tmp_path / "whole", **settings)
    disturbed = trained(tmp_path / "run", once_at(2), **settings)
    assert_same_run(disturbed, undisturbed)
    assert undisturbed.state.max_steps == 9


def test_several_processes_are_not_recovered_one_by_one(tmp_path: Path) -> None:
    """The smaller micro-batch is kept for the next start."""
    trainer = prepared(tmp_path, per_device_train_batch_size=4, gradient_accumulation_steps=2)
    trainer.is_fsdp_enabled = True
    trainer.train = lambda **_: always()()
    with pytest.raises(OutOfMemory) as caught:
        GuardedTraining(trainer).train()
    assert sizes(trainer) == (4, 2)
    if sys.version_info >= (3, 11):
        assert "torchrun --max-restarts=3" in caught.value.__notes__[0]
        assert "micro-batches of 2 instead of 4" in caught.value.__notes__[0]
    assert json.loads((tmp_path / ".asrconfig" / "run.json").read_text())["micro_batch"] == 2

    again = prepared(tmp_path, per_device_train_batch_size=4, gradient_accumulation_steps=2)
    again.is_fsdp_enabled = True
    calls: list[tuple[int, int]] = []
    again.train = lambda **_: calls.append(sizes(again))
    GuardedTraining(again, resume=True).train()
    assert calls == [(2, 4)]


def test_the_report_has_what_every_process_met(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    met = _Incidents([GuardEvent("training", 2, 4, 2, "CUDA out of memory", rank=1)], [], 3, 2)
    monkeypatch.setattr(ProcessGroup, "gathered", lambda _, own: [own, met])
    trainer = trained(tmp_path)
    assert "step 2 (training, rank 1): 4 → 2 after CUDA out of memory" in str(trainer.report)
    assert (trainer.report.skipped_samples, trainer.report.bad_samples) == (3, 2)
    assert json.loads((tmp_path / ".asrconfig" / "run.json").read_text())["events"][0]["rank"] == 1


def test_a_full_disk_leaves_checkpoints_to_go_on_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = torch.save

    def full(state: Any, file: Any, *args: Any, **kwargs: Any) -> None:
        if ".asrconfig" in str(getattr(file, "name", "")):
            raise RuntimeError("PytorchStreamWriter failed writing file: file write failed")
        real(state, file, *args, **kwargs)

    def refuse(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    undisturbed = trained(tmp_path / "whole")
    monkeypatch.setattr(torch, "save", full)
    monkeypatch.setattr(run_record, "write_whole", refuse)
    assert_same_run(trained(tmp_path / "run", once_at(6), save_strategy="steps", save_steps=2), undisturbed)
    with pytest.raises(OutOfMemory):
        trained(tmp_path / "other", once_at(6))
    written = [path.name for path in tmp_path.rglob(".asrconfig/*") if path.parts[-3] != "whole"]
    assert set(written) == {"lock"}


@pytest.mark.parametrize("retries", [-1, 101, 2.0, True, "3", None])
def test_refused_numbers_of_retries(tmp_path: Path, retries: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="max_retries"):
        GuardedTraining(tiny_trainer(tmp_path), max_retries=retries)


@pytest.mark.parametrize("resume", [1, None, "", 2.5])
def test_refused_places_to_resume_from(tmp_path: Path, resume: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="resume = "):
        GuardedTraining(tiny_trainer(tmp_path), resume=resume)


def test_refused_arguments(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="auto_find_batch_size"):
        GuardedTraining(tiny_trainer(tmp_path, auto_find_batch_size=True))
    with pytest.raises(InvalidArgumentError, match="resume_from_checkpoint"):
        GuardedTraining(tiny_trainer(tmp_path), resume_from_checkpoint=True)


def test_one_monitor_for_all_attempts_which_ends_whatever_happens(tmp_path: Path) -> None:
    watcher = AdaptiveMemoryCallback(interval_ms=5)
    trainer = prepared(tmp_path, once_at(2))
    trainer.add_callback(watcher)
    GuardedTraining(trainer).train()
    assert trainer.callback_handler.callbacks[0] is watcher
    assert watcher._monitor is not None and not watcher._monitor.running
    assert watcher.summary().samples > 0

    def interrupt(model: Any, size: int) -> None:
        assert watcher._monitor.running
        raise KeyboardInterrupt

    trainer.model.fail = interrupt
    with pytest.raises(KeyboardInterrupt):
        GuardedTraining(trainer).train()
    assert not watcher._monitor.running
    assert not left_behind(tmp_path)


@pytest.mark.parametrize("own", [False, True])
def test_the_trainer_is_left_as_it_was_found(tmp_path: Path, own: bool) -> None:
    trainer = tiny_trainer(tmp_path)
    mine = attach(trainer) if own else None
    before, callbacks = set(trainer.__dict__), list(trainer.callback_handler.callbacks)
    GuardedTraining(trainer).train()
    assert trainer.callback_handler.callbacks == callbacks
    replaced = {"get_train_dataloader", "compute_loss", "training_step", "_load_rng_state"}
    assert not replaced & (set(trainer.__dict__) - before)
    if mine is not None:
        assert attach(trainer) is mine
        mine.detach()
    assert "backward" not in trainer.accelerator.__dict__


def test_the_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manager = ASRConfigManager()
    trainer = prepared(tmp_path, once_at(6), save_strategy="steps", save_steps=4)
    output = manager.train(trainer)
    assert output.global_step == 12
    report = manager.report
    assert isinstance(report, TrainingReport)
    assert (report.steps, report.planned_steps, report.recomputed_steps, report.error) == (12, 12, 1, "")
    assert report.batch == (16, 1, 1)
    printed = capsys.readouterr().out
    for message in (
        "Training:",
        "12 of 12 steps",
        "effective batch 16: 16 × 1",
        "at most 8 samples",
        "memory ran out 1 time; no step was lost",
    ):
        assert message in printed
    assert "step 5 (outside of training steps): continued from step 4, 1 step made again" in repr(report)
    ended = repr(replace(report, error="OutOfMemoryError: CUDA out of memory"))
    assert "memory ran out 1 time" in ended and "no step was lost" not in ended
    assert "Training" in report._repr_html_()
    manager.train(prepared(tmp_path), verbose=False)
    assert "Training:" not in capsys.readouterr().out
