"""Recovery from running out of memory, faked on a CPU: the continued run must be the undisturbed one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from asrconfig_go import InfeasiblePlanError, InvalidArgumentError, LibraryError, _lib

pytest.importorskip("transformers")
torch = pytest.importorskip("torch")

from transformers import EarlyStoppingCallback, Trainer  # noqa: E402
from transformers.trainer_callback import TrainerCallback  # noqa: E402

from asrconfig_go.callback import AdaptiveMemoryCallback  # noqa: E402
from asrconfig_go.recovery import train_with_recovery  # noqa: E402
from disturbed_runs import Observer, OutOfMemory, assert_same_run, once_at, over, sizes, trained  # noqa: E402
from tiny_training import OUT_OF_MEMORY, Regression, tiny_trainer  # noqa: E402


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("save_steps", [None, 3, 4])
@pytest.mark.parametrize("batch", [1, 6, 10])
def test_a_failure_anywhere_leaves_the_same_run(
    tmp_path: Path, batch: int, save_steps: int | None, grouped: bool, group_by_length: dict[str, Any]
) -> None:
    """Four steps an epoch: the failure is in the first, second and third, the checkpoint inside or at its end."""
    settings: dict[str, Any] = group_by_length if grouped else {}
    if save_steps:
        settings = {**settings, "save_strategy": "steps", "save_steps": save_steps}
    whole = trained(tmp_path / "whole", **settings)
    disturbed = trained(tmp_path / "disturbed", once_at(batch), **settings)
    assert_same_run(disturbed, whole)
    assert sizes(disturbed) == (8, 2)
    assert not list((tmp_path / "disturbed").glob(".asrconfig*"))


@pytest.fixture
def group_by_length(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Settings for orders drawn from the global generator, which a resumed Trainer does not repeat by itself."""

    def sampler(self: Any, *_: Any) -> Any:
        from transformers.trainer_pt_utils import LengthGroupedSampler

        lengths = [1 + i % 7 for i in range(len(self.train_dataset))]
        size = self.args.train_batch_size * self.args.gradient_accumulation_steps
        return LengthGroupedSampler(size, lengths=lengths)

    class Grouped(Trainer):  # type: ignore[misc]
        _get_train_sampler = sampler

    return {"trainer_class": Grouped}


@pytest.mark.parametrize(("limit", "expected"), [(8, (8, 2)), (4, (4, 4)), (2, (2, 8))])
def test_halved_until_it_fits(tmp_path: Path, limit: int, expected: tuple[int, int]) -> None:
    whole = trained(tmp_path / "whole")
    disturbed = trained(tmp_path / "disturbed", over(limit))
    assert_same_run(disturbed, whole)
    assert sizes(disturbed) == expected


def test_gives_up_after_three_retries(tmp_path: Path) -> None:
    with pytest.raises(InfeasiblePlanError, match="CUDA out of memory") as caught:
        trained(tmp_path, over(1))
    assert isinstance(caught.value.__cause__, OutOfMemory)
    assert "3 of 3 retries are used up at a micro-batch of 2" in caught.value.hint
    assert not list(tmp_path.glob(".asrconfig*"))


def test_gives_up_when_one_sample_does_not_fit(tmp_path: Path) -> None:
    with pytest.raises(InfeasiblePlanError) as caught:
        trained(tmp_path, over(0), per_device_train_batch_size=2, gradient_accumulation_steps=8)
    assert "the micro-batch is 1 already" in caught.value.hint


def test_without_retries(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Regression()
    model.fail = over(0)
    with pytest.raises(InfeasiblePlanError):
        train_with_recovery(tiny_trainer(tmp_path, model=model), max_retries=0)


@pytest.mark.parametrize(
    ("error", "note"),
    [
        (MemoryError("[Errno 12] Cannot allocate memory"), "dataloader_num_workers"),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), "restart the process"),
        (ValueError("a mistake in the collator"), ""),
    ],
)
def test_other_failures_stay_what_they_are(tmp_path: Path, error: Exception, note: str) -> None:
    observer = Observer()
    with pytest.raises(type(error)) as caught:
        trained(tmp_path, once_at(2, error), callbacks=[observer])
    assert caught.value is error
    assert observer.begins == 1
    if sys.version_info >= (3, 11):
        assert note in " ".join(getattr(error, "__notes__", []))
        assert bool(note) == hasattr(error, "__notes__")


def test_a_disguised_failure_is_retried_once(tmp_path: Path) -> None:
    text = "cuDNN error: CUDNN_STATUS_NOT_SUPPORTED"
    trainer = trained(tmp_path, once_at(3, RuntimeError(text)))
    assert sizes(trainer) == (8, 2)

    def always(model: Any, size: int) -> None:
        raise RuntimeError(text)

    observer = Observer()
    with pytest.raises(RuntimeError, match="CUDNN_STATUS_NOT_SUPPORTED"):
        trained(tmp_path, always, callbacks=[observer])
    assert observer.begins == 2


def test_a_failure_in_evaluation_halves_the_evaluation_batch(tmp_path: Path) -> None:
    class Heavy(Trainer):  # type: ignore[misc]
        def prediction_step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            if len(inputs["x"]) > 8:
                raise OutOfMemory(OUT_OF_MEMORY)
            return super().prediction_step(model, inputs, *args, **kwargs)

    settings: dict[str, Any] = {"eval_strategy": "epoch", "per_device_eval_batch_size": 8}
    whole = trained(tmp_path / "whole", **settings)
    settings["per_device_eval_batch_size"] = 32
    disturbed = trained(tmp_path / "run", trainer_class=Heavy, **settings)
    assert_same_run(disturbed, whole)
    assert sizes(disturbed) == (16, 1)
    assert disturbed.args.per_device_eval_batch_size == 8


def test_early_stopping_counts_as_in_the_undisturbed_run(tmp_path: Path) -> None:
    def run(output: Path, fail: Any = None) -> Any:
        class Clock(TrainerCallback):
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

    whole = run(tmp_path / "whole")
    assert 8 <= whole.state.global_step < whole.state.max_steps  # older versions start counting at the first save
    for batch in (3, 7, 8):  # up to two evaluations are made twice, and count once
        assert_same_run(run(tmp_path / f"{batch}", once_at(batch)), whole)


def test_a_schedule_that_would_change_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OutOfMemory) as caught:
        trained(tmp_path, once_at(2), samples=60, dataloader_drop_last=True)
    if sys.version_info >= (3, 11):
        assert "dataloader_drop_last" in caught.value.__notes__[0]


def test_several_processes_are_not_recovered_one_by_one(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Regression()
    model.fail = once_at(2)
    trainer = tiny_trainer(tmp_path, model=model)
    trainer.is_fsdp_enabled = True
    trainer.train = lambda **_: model.fail(model, 4) or model.fail(model, 4)
    with pytest.raises(OutOfMemory) as caught:
        train_with_recovery(trainer)
    assert sizes(trainer) == (4, 1)
    if sys.version_info >= (3, 11):
        assert "restart all of them with per_device_train_batch_size=2" in caught.value.__notes__[0]


def test_a_disk_that_is_full_leaves_checkpoints_to_go_on_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = torch.save

    def full(state: Any, file: Any, *args: Any, **kwargs: Any) -> None:
        if ".asrconfig" in str(getattr(file, "name", "")):
            raise RuntimeError("PytorchStreamWriter failed writing file: file write failed")
        real(state, file, *args, **kwargs)

    whole = trained(tmp_path / "whole")
    monkeypatch.setattr(torch, "save", full)
    assert_same_run(trained(tmp_path / "run", once_at(6), save_strategy="steps", save_steps=2), whole)
    with pytest.raises(OutOfMemory):
        trained(tmp_path / "other", once_at(6))
    assert not list(tmp_path.rglob(".asrconfig*"))


def test_a_missing_library_does_not_hide_the_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: Any) -> None:
        raise LibraryError("the library is gone")

    monkeypatch.setattr(_lib, "call", missing)
    with pytest.raises(OutOfMemory):
        trained(tmp_path, once_at(2))


@pytest.mark.parametrize("retries", [-1, 101, 2.0, True, "3", None])
def test_refused_numbers_of_retries(tmp_path: Path, retries: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="max_retries"):
        train_with_recovery(tiny_trainer(tmp_path), max_retries=retries)


def test_refused_arguments(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="auto_find_batch_size"):
        train_with_recovery(tiny_trainer(tmp_path, auto_find_batch_size=True))
    with pytest.raises(InvalidArgumentError, match="holds no checkpoint"):
        train_with_recovery(tiny_trainer(tmp_path), resume_from_checkpoint=True)


def test_one_monitor_for_all_attempts_which_ends_whatever_happens(tmp_path: Path) -> None:
    watcher = AdaptiveMemoryCallback(interval_ms=5)
    torch.manual_seed(0)
    model = Regression()
    model.fail = once_at(2)
    trainer = tiny_trainer(tmp_path, model=model)
    train_with_recovery(trainer, callback=watcher)
    assert trainer.callback_handler.callbacks[0] is watcher
    assert watcher._monitor is not None and not watcher._monitor.running
    assert watcher.summary().samples > 0

    def interrupt(model: Any, size: int) -> None:
        assert watcher._monitor.running
        raise KeyboardInterrupt

    model.fail = interrupt
    with pytest.raises(KeyboardInterrupt):
        train_with_recovery(trainer)
    assert not watcher._monitor.running
    assert not list(tmp_path.glob(".asrconfig*"))


def test_the_trainer_is_left_as_it_was_found(tmp_path: Path) -> None:
    trainer = tiny_trainer(tmp_path)
    before, callbacks = set(trainer.__dict__), list(trainer.callback_handler.callbacks)
    train_with_recovery(trainer)
    assert trainer.callback_handler.callbacks == callbacks
    assert not {"get_train_dataloader", "compute_loss"} & (set(trainer.__dict__) - before)
    assert "backward" not in trainer.accelerator.__dict__
