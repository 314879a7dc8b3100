"""Recovery from running out of memory, faked on a CPU: the continued run must be the undisturbed one."""

from __future__ import annotations

import gc
import sys
import weakref
from pathlib import Path
from typing import Any

import pytest

from asrconfig_go import InfeasiblePlanError, InvalidArgumentError, LibraryError, _lib, recovery

pytest.importorskip("transformers")
torch = pytest.importorskip("torch")

from transformers import EarlyStoppingCallback, Trainer  # noqa: E402
from transformers.trainer_callback import TrainerCallback  # noqa: E402

from asrconfig_go.callback import AdaptiveMemoryCallback  # noqa: E402
from asrconfig_go.recovery import train_with_recovery  # noqa: E402
from tiny_training import OUT_OF_MEMORY, Regression, tiny_trainer  # noqa: E402

OutOfMemory = torch.cuda.OutOfMemoryError


class Observer(TrainerCallback):
    """The schedule and the samples of every optimizer step; of a step done twice the later one."""

    def __init__(self) -> None:
        self.rates: dict[int, float] = {}
        self.samples: dict[int, list[int]] = {}
        self.begins = 0

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.begins += 1

    def on_step_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        model.seen.clear()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.rates[state.global_step] = kwargs["lr_scheduler"].get_last_lr()[0]
        self.samples[state.global_step] = [index for batch in kwargs["model"].seen for index in batch]


def over(limit: int) -> Any:
    """Out of memory whenever a training batch has more than ``limit`` samples."""

    def fail(model: Any, size: int) -> None:
        if size > limit:
            raise OutOfMemory(OUT_OF_MEMORY)

    return fail


def once_at(batch: int, error: Exception | None = None) -> Any:
    """An exception in the ``batch``-th training batch of the run, once."""
    count = 0

    def fail(model: Any, size: int) -> None:
        nonlocal count
        count += 1
        if count == batch:
            raise error or OutOfMemory(OUT_OF_MEMORY)

    return fail


def trained(output: Path, fail: Any = None, *, resume: Any = None, model: Any = None, **settings: Any) -> Any:
    """A trainer that has trained with recovery, with an observer at ``trainer.seen``."""
    if model is None:
        torch.manual_seed(0)
        model = Regression()
    model.fail = fail
    observer = Observer()
    callbacks = [observer, *settings.pop("callbacks", [])]
    defaults = {"samples": 64, "per_device_train_batch_size": 16, "num_train_epochs": 3, "save_strategy": "no"}
    trainer = tiny_trainer(output, model=model, callbacks=callbacks, **{**defaults, **settings})
    trainer.seen = observer
    train_with_recovery(trainer, resume_from_checkpoint=resume)
    return trainer


def weights(trainer: Any) -> Any:
    return torch.cat([p.detach().flatten() for p in trainer.model.parameters()])


def assert_same_run(disturbed: Any, whole: Any) -> None:
    """Same samples in the same order at every step, same learning rates, logged steps and weights."""
    assert disturbed.seen.samples == whole.seen.samples
    assert disturbed.seen.rates == whole.seen.rates
    assert disturbed.state.global_step == whole.state.global_step
    assert disturbed.state.max_steps == whole.state.max_steps
    logged = [[entry["step"] for entry in t.state.log_history] for t in (disturbed, whole)]
    assert logged[0] == logged[1]
    assert torch.allclose(weights(disturbed), weights(whole), atol=1e-5)


def sizes(trainer: Any) -> tuple[int, int]:
    return trainer.args.per_device_train_batch_size, trainer.args.gradient_accumulation_steps


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


def test_checkpoints_of_an_earlier_run_are_not_continued_from(tmp_path: Path) -> None:
    saving = {"save_strategy": "steps", "save_steps": 2}
    trained(tmp_path / "run", **saving, seed=5, learning_rate=0.5)
    whole = trained(tmp_path / "whole", **saving)
    disturbed = trained(tmp_path / "run", once_at(2), **saving)
    assert_same_run(disturbed, whole)


def test_a_resumed_run_goes_on_from_the_checkpoint_that_it_was_given(tmp_path: Path) -> None:
    saving = {"save_strategy": "steps", "save_steps": 5}
    whole = trained(tmp_path / "whole", **saving)
    trained(tmp_path / "run", **saving)
    for resume in (True, str(tmp_path / "run" / "checkpoint-5")):
        if resume is True:
            for later in ("checkpoint-10", "checkpoint-12"):
                (tmp_path / "run" / later).rename(tmp_path / f"{later}-aside")
        torch.manual_seed(1)  # other initial weights, which must not come back
        disturbed = trained(tmp_path / "run", once_at(3), resume=resume, model=Regression(), **saving)
        assert disturbed.seen.begins == 2
        assert min(disturbed.seen.samples) == 6
        assert disturbed.seen.samples == {s: i for s, i in whole.seen.samples.items() if s > 5}
        assert torch.allclose(weights(disturbed), weights(whole), atol=1e-5)


def test_a_given_optimizer_and_scheduler_start_again(tmp_path: Path) -> None:
    def run(output: Path, fail: Any = None, **settings: Any) -> Any:
        torch.manual_seed(0)
        model = Regression()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.9**step)
        trainer = trained(output, fail, model=model, optimizers=(optimizer, scheduler), **settings)
        assert getattr(trainer.optimizer, "optimizer", trainer.optimizer) is optimizer
        return trainer

    for settings in ({}, {"save_strategy": "steps", "save_steps": 4}):
        whole = run(tmp_path / "whole", **settings)
        assert_same_run(run(tmp_path / "run", once_at(6), **settings), whole)


def test_model_init_makes_the_model_anew(tmp_path: Path) -> None:
    def run(output: Path, fail: Any = None) -> Any:
        def make() -> Regression:
            model = Regression()
            model.fail = fail
            return model

        trainer = tiny_trainer(output, samples=64, per_device_train_batch_size=16, model_init=make)
        train_with_recovery(trainer)
        return trainer

    assert torch.allclose(weights(run(tmp_path, once_at(3))), weights(run(tmp_path)), atol=1e-5)


def test_buffers_and_frozen_parameters(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Regression()
    model.first.weight.requires_grad_(False)
    before = model.first.weight.clone()
    trainer = trained(tmp_path, once_at(6), model=model)
    assert torch.equal(model.first.weight, before)
    assert trainer.model.batches == 3 * 8  # 4 steps an epoch in 2 micro-batches, the failed attempt's not among them


def test_parameters_unfrozen_on_the_way_cannot_be_restored(tmp_path: Path) -> None:
    class Unfreeze(TrainerCallback):
        def on_step_end(self, *args: Any, model: Any = None, **kwargs: Any) -> None:
            model.first.weight.requires_grad_(True)

    torch.manual_seed(0)
    model = Regression()
    model.first.weight.requires_grad_(False)
    with pytest.raises(OutOfMemory) as caught:
        trained(tmp_path, once_at(6), model=model, callbacks=[Unfreeze()])
    if sys.version_info >= (3, 11):
        assert "per_device_train_batch_size=8 and gradient_accumulation_steps=2" in caught.value.__notes__[0]


def test_nothing_of_the_failed_step_is_held_in_the_next_attempt(tmp_path: Path) -> None:
    """The exception outlives the step, for the message; what its causes' frames held must not."""
    activations: list[Any] = []
    alive: list[bool] = []

    class Watch(TrainerCallback):
        def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
            if activations:
                alive.append(activations[0]() is not None)

    def layer() -> None:
        activation = torch.zeros(1000)
        activations.append(weakref.ref(activation))
        raise ValueError("in a layer")

    def fail(model: Any, size: int) -> None:
        if not activations:
            try:
                layer()
            except ValueError as error:
                raise OutOfMemory(OUT_OF_MEMORY) from error

    gc.disable()  # nothing but the recovery itself
    try:
        trained(tmp_path, fail, callbacks=[Watch()])
    finally:
        gc.enable()
    assert alive == [False]


def test_gradients_and_optimizer_state_are_gone_when_the_cache_is_emptied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    model = Regression()
    optimizers: list[Any] = []
    held: list[Any] = []

    def free_memory() -> None:
        gc.collect()
        held.append(([p.grad for p in model.parameters()], optimizers[0]()))

    monkeypatch.setattr(recovery, "_free_memory", free_memory)

    class Watch(TrainerCallback):
        def on_step_end(self, *args: Any, optimizer: Any = None, **kwargs: Any) -> None:
            if not optimizers:
                optimizers.append(weakref.ref(getattr(optimizer, "optimizer", optimizer)))

    def fail(model: Any, size: int) -> None:
        if optimizers and not held:
            model.first.weight.grad = torch.ones_like(model.first.weight)
            raise OutOfMemory(OUT_OF_MEMORY)

    trained(tmp_path, fail, model=model, callbacks=[Watch()])
    assert held == [([None] * 4, None)]


def test_the_accelerator_is_made_anew(tmp_path: Path) -> None:
    made: list[Any] = []

    class Watched(Trainer):  # type: ignore[misc]
        def create_accelerator_and_postprocess(self) -> None:
            super().create_accelerator_and_postprocess()
            made.append(self.accelerator)

    given = {"gradient_accumulation_kwargs": {"sync_with_dataloader": False}}
    trainer = trained(tmp_path, once_at(2), trainer_class=Watched, accelerator_config=given)
    assert len(made) == 2
    assert trainer.accelerator is made[1]
    assert sizes(trainer) == (8, 2)


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
