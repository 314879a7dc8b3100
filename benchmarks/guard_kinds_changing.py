"""Kinds whose step is another one later, or in training, than what their first batch shows, for ``guard_kinds.py``."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from guard_kinds_losses import LossTrainer, Tagger, clip_mean, frames, tagger, token_mean
from guard_kinds_runs import Kind, Pad
from guard_kinds_steps import ROWS, FgmTrainer, RegularisedTrainer, points, regression
from torch import nn
from torch.nn import functional as F
from transformers import BatchFeature, Trainer

from tiny_training import Regression


class Spreading(Tagger):
    """In training alone, clips are to differ from the others of their batch, as experts are to share the load."""

    def forward(self, input_values: Any, labels: Any = None, attention_mask: Any = None) -> dict[str, Any]:
        outputs = super().forward(input_values, labels, attention_mask)
        if self.training:
            outputs["loss"] = outputs["loss"] - 0.1 * outputs["logits"][:, :8].mean(1).var(0, unbiased=False).mean()
        return outputs


class RememberingTrainer(LossTrainer):
    """A mean over frames, and one over clips of how far it is from where it began: nothing at first."""

    first: Any = None

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **kwargs: Any) -> Any:
        if self.first is None:
            self.first = copy.deepcopy(self.model).requires_grad_(False).eval()
        loss, outputs = super().compute_loss(model, inputs, return_outputs=True, **kwargs)
        wanted = self.first(inputs["input_values"])["logits"]
        losses = (outputs["logits"] - wanted).square().mean(-1) * inputs["attention_mask"]
        loss = loss + (losses.sum(1) / inputs["attention_mask"].sum(1)).mean()
        return (loss, outputs) if return_outputs else loss


class JoiningTrainer(LossTrainer):
    """From the third step on, clips are also told from the others of their batch."""

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **kwargs: Any) -> Any:
        loss, outputs = super().compute_loss(model, inputs, return_outputs=True, **kwargs)
        if model.training and self.state.global_step >= 2:
            means = F.normalize(outputs["logits"][:, :8].mean(1), dim=-1)
            loss = loss + F.cross_entropy(means @ means.T / 0.1, torch.arange(len(means)))
        return (loss, outputs) if return_outputs else loss


class LaterFgmTrainer(FgmTrainer):
    """Perturbs weights from the second epoch on."""

    def training_step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if (self.state.epoch or 0.0) < 1.0:
            return Trainer.training_step(self, model, inputs, *args, **kwargs)
        return super().training_step(model, inputs, *args, **kwargs)


class LaterRegularisedTrainer(RegularisedTrainer):
    """The penalty joins in the third step: still one that adds up."""

    def changed(self, model: Any, inputs: Any, items: Any) -> Any:
        if self.state.global_step < 2:
            return self.compute_loss(model, inputs, num_items_in_batch=items)
        return super().changed(model, inputs, items)


class CollectingTrainer(LossTrainer):
    """Collects a part of its loss, and logs the mean of what was collected."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.parts: list[float] = []

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **kwargs: Any) -> Any:
        loss, outputs = super().compute_loss(model, inputs, return_outputs=True, **kwargs)
        self.parts.append(float(loss.detach()))
        return (loss, outputs) if return_outputs else loss

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        if self.parts:
            logs["part"] = sum(self.parts) / len(self.parts)
            self.parts.clear()
        super().log(logs, *args, **kwargs)


class FrozenNorm(Regression):
    """Batch normalisation with statistics that stay."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(6)

    def train(self, mode: bool = True) -> Any:
        super().train(mode)
        self.norm.eval()
        return self

    def forward(self, x: Any, labels: Any = None, index: Any = None) -> dict[str, Any]:
        return super().forward(self.norm(x), labels, index)


class TwoTasks(Tagger):
    """Labels of two tasks, in a mapping."""

    def forward(self, input_values: Any, labels: Any = None, attention_mask: Any = None) -> dict[str, Any]:
        logits = super().forward(input_values)["logits"]
        loss = clip_mean(logits, labels["frames"]) + F.cross_entropy(logits[:, :8].mean(1), labels["clip"])
        return {"loss": loss, "logits": logits}


class Settings(Regression):
    """Takes a number and nothing from its batch."""

    def forward(  # type: ignore[override]
        self, x: Any, labels: Any = None, index: Any = None, scale: float = 1.0, note: Any = None
    ) -> dict[str, Any]:
        return super().forward(scale * x, labels, index)


def _two_tasks(rows: list[dict[str, Any]]) -> dict[str, Any]:
    batch = Pad(mask="input_values")(rows)
    labels = {"frames": batch.pop("labels"), "clip": torch.stack([row["labels"][0] for row in rows])}
    return {**batch, "labels": labels}


def _halved(trainer: Any) -> None:
    for p in trainer.model.parameters():
        p.register_hook(lambda grad: 0.5 * grad)


_LOSS = ("the loss", "compute_loss")
CHANGING: dict[str, Callable[[], Kind]] = {
    "loss: term of the batch in training": lambda: tagger(
        model=lambda: Spreading(clip_mean), own_shape=True, names=(*_LOSS, "Spreading")
    ),
    "compute_loss: distance from the first weights": lambda: tagger(trainer=RememberingTrainer, model=Tagger),
    "compute_loss: term of the batch joins later": lambda: tagger(
        trainer=JoiningTrainer, model=Tagger, own_shape=True, rows=frames(equal=ROWS)
    ),
    "compute_loss: parts collected for the log": lambda: tagger(
        trainer=CollectingTrainer, model=Tagger, own_shape=True, rows=frames(equal=ROWS)
    ),
    "step: FGM from the second epoch": lambda: regression(trainer=LaterFgmTrainer, own_shape=True),
    "step: regulariser joins later": lambda: regression(trainer=LaterRegularisedTrainer),
    "hooks: gradients halved": lambda: regression(prepare=_halved, names=("hook",)),
    "batch normalisation, frozen": lambda: regression(model=FrozenNorm, names=("norm",)),
    "batch: labels in a mapping": lambda: tagger(model=TwoTasks, collate=_two_tasks, names=("labels",), metrics=False),
    "batch: BatchFeature": lambda: tagger(
        token_mean, collate=lambda rows: BatchFeature(Pad(mask="input_values")(rows))
    ),
    "batch: a number and None": lambda: regression(
        model=Settings, collate=Pad(more={"scale": 0.5, "note": None}), rows=points()
    ),
}
