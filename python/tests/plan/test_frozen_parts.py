"""A frozen part stays as it is, and lets the guard split batches in spite of its batch normalisation."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from asrconfig_go import errors
from asrconfig_go.guard import attach
from asrconfig_go.plan import freeze
from tiny_training import OUT_OF_MEMORY, Regression, tiny_trainer


class Normalised(Regression):
    """A part with batch normalisation before the model; four clips of eight fit."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Dropout(0.5))
        self.fail = self._full

    def _full(self, model: Any, size: int) -> None:
        if size > 4:
            raise torch.cuda.OutOfMemoryError(OUT_OF_MEMORY)

    def forward(self, x: torch.Tensor, labels: Any = None, index: Any = None) -> Any:
        return super().forward(self.encoder(x), labels, index)


def test_it_stays_in_evaluation_mode_and_untrained() -> None:
    model = Normalised()
    assert freeze(model.encoder) is model.encoder
    assert not any(p.requires_grad for p in model.encoder.parameters())
    assert model.train() is model and model.training
    assert not any(part.training for part in model.encoder.modules())
    before = copy.deepcopy(model.encoder[1].running_mean)
    model.encoder(torch.randn(8, 6))
    assert torch.equal(model.encoder[1].running_mean, before)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_copies_stay_frozen_themselves(duplicate: Any) -> None:
    """The recorder traces a copy; a checkpoint of the whole module is one, too."""
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    freeze(model[1])
    other = duplicate(model)
    other.train()
    assert other.training and not other[1].training
    assert other[1].train() is other[1]


def test_the_guard_splits_what_it_refused(tmp_path: Path) -> None:
    refused = tiny_trainer(tmp_path, model=Normalised(), per_device_train_batch_size=8, max_steps=1)
    attach(refused, rule="mean")
    with pytest.raises(errors.InfeasiblePlanError) as caught:
        refused.train()
    assert "plan.freeze" in str(caught.value)
    model = Normalised()
    freeze(model.encoder)
    trainer = tiny_trainer(tmp_path, model=model, per_device_train_batch_size=8, max_steps=1)
    guard = attach(trainer, rule="mean")
    trainer.train()
    assert [(event.micro_batch_before, event.micro_batch_after) for event in guard.events] == [(8, 4)]


def test_other_objects_are_refused() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="cannot freeze a str"):
        freeze("encoder")
