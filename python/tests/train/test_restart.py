"""What a retry starts from: checkpoints or the initial state, callbacks as they were, nothing of the failed step."""

from __future__ import annotations

import copy
import gc
import logging
import sys
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Trainer
from transformers.trainer_callback import TrainerCallback

from asrconfig_go.train import guarded_training
from asrconfig_go.train.guarded_training import GuardedTraining
from asrconfig_go.train.trainer_reset import CALLBACKS_FILE
from disturbed_runs import (
    SAVING,
    Failing,
    OutOfMemory,
    assert_same_run,
    interrupted,
    limits,
    once_at,
    prepared,
    sizes,
    trained,
    weights,
)
from tiny_training import OUT_OF_MEMORY, Regression, tiny_trainer


def test_checkpoints_of_an_earlier_run_are_not_continued_from(tmp_path: Path) -> None:
    saving: dict[str, Any] = {"save_strategy": "steps", "save_steps": 2}
    trained(tmp_path / "run", **saving, seed=5, learning_rate=0.5)
    undisturbed = trained(tmp_path / "whole", **saving)
    disturbed = trained(tmp_path / "run", once_at(2), **saving)
    assert_same_run(disturbed, undisturbed)
    assert disturbed.report.recomputed_steps == 1


class Halfway(torch.optim.SGD):  # type: ignore[misc]
    """Has updated its first weight when memory runs out."""

    fail: Any = None

    def step(self, *args: Any, **kwargs: Any) -> None:
        try:
            if self.fail:
                self.fail()
        except OutOfMemory:
            first = self.param_groups[0]["params"][0]
            with torch.no_grad():
                first.sub_(first.grad)
            raise
        super().step(*args, **kwargs)


@pytest.mark.parametrize("settings", [{}, {"save_strategy": "steps", "save_steps": 4}])
@pytest.mark.parametrize("halfway", [False, True])
def test_a_given_optimizer_and_scheduler_start_again(tmp_path: Path, settings: dict[str, Any], halfway: bool) -> None:
    """Also where the optimizer's step was half done."""

    def run(output: Path, fail: Any = None) -> Any:
        torch.manual_seed(0)
        model = Regression()
        optimizer = Halfway(model.parameters(), lr=0.1, momentum=0.9)
        if halfway:
            optimizer.fail, fail = fail, None
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.9**step)
        trainer = trained(output, fail, model=model, optimizers=(optimizer, scheduler), **settings)
        assert getattr(trainer.optimizer, "optimizer", trainer.optimizer) is optimizer
        return trainer

    assert_same_run(run(tmp_path / "run", once_at(6)), run(tmp_path / "whole"))


def test_model_init_makes_the_model_anew(tmp_path: Path) -> None:
    def run(output: Path, fail: Any = None) -> Any:
        callbacks = [Failing("on_pre_optimizer_step", fail)] if fail else []
        settings: dict[str, Any] = {"samples": 64, "per_device_train_batch_size": 16, "callbacks": callbacks}
        trainer = tiny_trainer(output, model_init=lambda: Regression(), **settings)
        GuardedTraining(trainer).train()
        return trainer

    assert torch.allclose(weights(run(tmp_path, once_at(3))), weights(run(tmp_path)), atol=1e-6)


def test_buffers_and_frozen_parameters(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Regression()
    model.first.weight.requires_grad_(False)
    before = model.first.weight.clone()
    trainer = trained(tmp_path, once_at(6), model=model)
    assert torch.equal(model.first.weight, before)
    assert trainer.model.batches == 3 * 4  # 4 steps an epoch, in 2 micro-batches that leave buffers as one batch does


def test_parameters_unfrozen_on_the_way_cannot_be_restored(tmp_path: Path) -> None:
    class Unfreeze(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, *args: Any, model: Any = None, **kwargs: Any) -> None:
            model.first.weight.requires_grad_(True)

    torch.manual_seed(0)
    model = Regression()
    model.first.weight.requires_grad_(False)
    with pytest.raises(OutOfMemory) as caught:
        trained(tmp_path, once_at(6), model=model, callbacks=[Unfreeze()])
    if sys.version_info >= (3, 11):
        assert "neither a checkpoint of this run nor its initial state" in caught.value.__notes__[0]


def test_nothing_of_the_failed_step_is_held_in_the_next_attempt(tmp_path: Path) -> None:
    """The exception outlives the step, for the message; what its causes' frames held must not."""
    activations: list[Any] = []
    alive: list[bool] = []

    class Watch(TrainerCallback):  # type: ignore[misc]
        def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
            if activations:
                alive.append(activations[0]() is not None)

    def layer() -> None:
        activation = torch.zeros(1000)
        activations.append(weakref.ref(activation))
        raise ValueError("in a layer")

    def fail() -> None:
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
    sizes: list[Any] = []

    def free_memory() -> None:
        gc.collect()
        sizes.append(([p.grad for p in model.parameters()], optimizers[0]()))

    monkeypatch.setattr(guarded_training, "free_memory", free_memory)

    class Watch(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, *args: Any, optimizer: Any = None, **kwargs: Any) -> None:
            if not optimizers:
                optimizers.append(weakref.ref(getattr(optimizer, "optimizer", optimizer)))

    def fail() -> None:
        if optimizers and not sizes:
            assert model.first.weight.grad is not None
            raise OutOfMemory(OUT_OF_MEMORY)

    trained(tmp_path, fail, model=model, callbacks=[Watch()])
    assert sizes == [([None] * 4, None)]


def test_the_accelerator_is_made_anew(tmp_path: Path) -> None:
    made: list[Any] = []

    class Watched(Trainer):  # type: ignore[misc]
        def create_accelerator_and_postprocess(self) -> None:
            super().create_accelerator_and_postprocess()
            made.append(self.accelerator)

    options = {"gradient_accumulation_kwargs": {"sync_with_dataloader": False}}
    trainer = trained(tmp_path, once_at(2), trainer_class=Watched, accelerator_config=options)
    assert len(made) == 2
    assert trainer.accelerator is made[1]
    assert sizes(trainer) == (16, 1)
    assert limits(trainer) == [(16, 8)]


class Averaged(TrainerCallback):  # type: ignore[misc]
    """Holds an average of the weights, and cannot tell it."""

    def __init__(self) -> None:
        self.average: dict[str, Any] = {}

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        if not self.average:
            self.average = {name: p.detach().clone() for name, p in model.named_parameters()}

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        for name, p in model.named_parameters():
            self.average[name].lerp_(p.detach(), 0.3)


class Saved(Averaged):
    """One that can."""

    def state_dict(self) -> dict[str, Any]:
        return self.average

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.average = state


class Module(TrainerCallback):  # type: ignore[misc]
    """Holds a copy of the model."""

    def __init__(self, model: Any) -> None:
        self.helper = {"copies": [copy.deepcopy(model)]}


class Harmless(TrainerCallback):  # type: ignore[misc]
    """Holds what is the trainer's own."""

    def on_train_begin(self, *_: Any, model: Any = None, optimizer: Any = None, **kwargs: Any) -> None:
        self.model, self.weight, self.optimizer = model, model.first.weight, optimizer
        self.losses, self.name, self.loss = [1.0, 2.0], "x", torch.nn.MSELoss()


def average(trainer: Any) -> Any:
    weights = next(c for c in trainer.callback_handler.callbacks if isinstance(c, Averaged)).average
    return torch.cat([value.flatten() for value in weights.values()])


@pytest.mark.parametrize("saving", [{}, SAVING], ids=["from the start", "from a checkpoint"])
def test_a_restart_puts_it_back(tmp_path: Path, saving: dict[str, Any]) -> None:
    undisturbed = trained(tmp_path / "whole", callbacks=[Saved()], **saving)
    disturbed = trained(tmp_path / "run", once_at(6), callbacks=[Saved()], **saving)
    assert disturbed.report.restarts
    assert torch.allclose(weights(disturbed), weights(undisturbed), atol=1e-6)
    assert torch.allclose(average(disturbed), average(undisturbed), atol=1e-6)


def test_a_resumed_run_has_it_too(tmp_path: Path) -> None:
    undisturbed = trained(tmp_path / "whole", callbacks=[Saved()], **SAVING)
    interrupted(tmp_path / "run", 8, callbacks=[Saved()])
    assert (tmp_path / "run" / "checkpoint-6" / CALLBACKS_FILE).is_file()
    resumed = trained(tmp_path / "run", resume=True, callbacks=[Saved()], **SAVING)
    assert torch.allclose(average(resumed), average(undisturbed), atol=1e-6)


@pytest.mark.parametrize("callback", [lambda t: Averaged(), lambda t: Module(t.model)], ids=["tensors", "module"])
def test_what_cannot_be_put_back_is_named_before_and_ends_the_training(
    tmp_path: Path, callback: Any, caplog: pytest.LogCaptureFixture
) -> None:
    trainer = prepared(tmp_path, once_at(6), **SAVING)
    added = callback(trainer)
    trainer.add_callback(added)
    name = "average" if isinstance(added, Averaged) else "helper"
    with caplog.at_level(logging.WARNING, "asrconfig_go"), pytest.raises(OutOfMemory) as caught:
        GuardedTraining(trainer).train()
    named = f"{type(added).__name__} ({name})"
    assert caplog.text.count(f"{named}: tensors that no checkpoint holds") == 1
    if sys.version_info >= (3, 11):
        assert f"cannot restart: {named} would not be put back" in " ".join(caught.value.__notes__)


def test_what_belongs_to_the_trainer_is_not_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "asrconfig_go"):
        disturbed = trained(tmp_path, once_at(6), callbacks=[Harmless()], **SAVING)
    assert "no checkpoint holds" not in caplog.text
    assert disturbed.report.restarts
