"""Callbacks that hold tensors, such as averages of weights: put back with a checkpoint, or named before training."""

from __future__ import annotations

import copy
import logging
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers.trainer_callback import TrainerCallback

from asrconfig_go.train.trainer_reset import CALLBACKS_FILE
from disturbed_runs import OutOfMemory, once_at, prepared, trained, weights

SAVING: dict[str, Any] = {"save_strategy": "steps", "save_steps": 3}


class Stopped(Exception):
    pass


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
    with pytest.raises(Stopped):
        trained(tmp_path / "run", once_at(8, Stopped()), event="on_step_end", callbacks=[Saved()], **SAVING)
    assert (tmp_path / "run" / "checkpoint-6" / CALLBACKS_FILE).is_file()
    resumed = trained(tmp_path / "run", resume=True, callbacks=[Saved()], **SAVING)
    assert torch.allclose(average(resumed), average(undisturbed), atol=1e-6)


@pytest.mark.parametrize("callback", [lambda t: Averaged(), lambda t: Module(t.model)], ids=["tensors", "module"])
def test_what_cannot_be_put_back_is_named_before_and_ends_the_training(
    tmp_path: Path, callback: Any, caplog: pytest.LogCaptureFixture
) -> None:
    from asrconfig_go.train.guarded_training import GuardedTraining

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
