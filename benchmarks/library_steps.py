"""Trainers with steps, heads, hooks and batches of their own, and all kinds of own Trainers by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from library_memory import Kind
from library_trainers import (
    AnnealingTrainer,
    AveragingTrainer,
    CountingTrainer,
    CyclingTrainer,
    DataAveragingTrainer,
    EmaCallback,
    GloballyNoisyTrainer,
    MeanTeacherTrainer,
    MetricsTrainer,
    Net,
    NoisyTrainer,
    NumpyMasked,
    RandomCollate,
    RandomScale,
    ScaledByCallbackTrainer,
    SecondLoaderTrainer,
    own,
    points,
    stacked,
)
from torch import nn
from torch.nn import functional as F
from transformers import BatchEncoding, Trainer, TrainerCallback


class FgmTrainer(Trainer):  # type: ignore[misc]
    """Moves a weight along its gradient, adds the gradient there, and moves it back."""

    def training_step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        loss = super().training_step(model, dict(inputs), *args, **kwargs)
        weight = model.first.weight
        before = weight.data.clone()
        weight.data.add_(weight.grad, alpha=0.5 / float(weight.grad.norm()))
        super().training_step(model, dict(inputs), *args, **kwargs)
        weight.data.copy_(before)
        return loss


class SamTrainer(Trainer):  # type: ignore[misc]
    """Follows the gradient of where the loss is worst nearby (of one micro-batch an optimizer step)."""

    def training_step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        before = [(p.data.clone(), None if p.grad is None else p.grad.clone()) for p in model.parameters()]
        model.zero_grad()
        loss = super().training_step(model, dict(inputs), *args, **kwargs)
        norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
        for p in model.parameters():
            p.data.add_(p.grad, alpha=0.1 / float(norm))
        model.zero_grad()
        super().training_step(model, dict(inputs), *args, **kwargs)
        for p, (value, grad) in zip(model.parameters(), before, strict=True):
            p.data.copy_(value)
            if grad is not None:
                p.grad.add_(grad)
        return loss


class ZeroGrad(TrainerCallback):  # type: ignore[misc]
    """Clears gradients that ``model.zero_grad()`` does not reach, as sentence-transformers does."""

    def on_train_begin(self, *args: Any, optimizer: Any = None, **kwargs: Any) -> None:
        optimizer.zero_grad()

    def on_step_end(self, *args: Any, optimizer: Any = None, **kwargs: Any) -> None:
        optimizer.zero_grad()


class HeadTrainer(Trainer):  # type: ignore[misc]
    """A loss with weights of its own, which the optimizer has and the model does not."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.head = nn.Linear(16, 3, dtype=torch.float64)

    def create_optimizer(self, *args: Any, **kwargs: Any) -> Any:
        self.optimizer = torch.optim.SGD([*self.model.parameters(), *self.head.parameters()], lr=0.1)
        return self.optimizer

    def features(self, model: Any, inputs: Any) -> Any:
        model(inputs["x"])  # its hooks
        return self.model.features(inputs["x"])

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **kwargs: Any) -> Any:
        return F.cross_entropy(self.head(self.features(model, inputs)), inputs["labels"])


class Uncertainty(nn.Module):  # type: ignore[misc]
    """A loss function with a weight of its own: the variance of the predictions."""

    def __init__(self) -> None:
        super().__init__()
        self.log_variance = nn.Parameter(torch.zeros((), dtype=torch.float64))

    def forward(self, outputs: Any, labels: Any, num_items_in_batch: Any = None) -> Any:
        return F.mse_loss(outputs["logits"], labels) * torch.exp(-self.log_variance) + self.log_variance


class UncertaintyTrainer(Trainer):  # type: ignore[misc]
    """Divides by the accumulation steps itself, as a ``compute_loss_func`` has to."""

    def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
        return super().compute_loss(*args, **kwargs) / self.args.gradient_accumulation_steps


def _uncertain(model: Any) -> dict[str, Any]:
    loss = Uncertainty()
    optimizer = torch.optim.SGD([*model.parameters(), *loss.parameters()], lr=0.05)
    return {"compute_loss_func": loss, "optimizers": (optimizer, None)}


class Centers(nn.Module):  # type: ignore[misc]
    """The distance from the centers of classes, which follow the features."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("class_centers", torch.zeros(3, 16, dtype=torch.float64))

    def forward(self, features: Any, labels: Any) -> Any:
        loss = F.mse_loss(features, self.class_centers[labels])
        with torch.no_grad():
            for label in labels.unique():
                self.class_centers[label] += 0.5 * (features[labels == label].mean(0) - self.class_centers[label])
        return loss


class CenterTrainer(HeadTrainer):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.center_loss = Centers()

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **kwargs: Any) -> Any:
        features = self.features(model, inputs)
        return F.cross_entropy(self.head(features), inputs["labels"]) + self.center_loss(features, inputs["labels"])


class MomentumContrast(Net):
    """Keys of the batches before in a queue, by an average of the weights, both of them the model's."""

    def __init__(self) -> None:
        super().__init__()
        self.key_encoder = Net().requires_grad_(False)
        self.key_queue: Any
        self.register_buffer("key_queue", F.normalize(torch.randn(16, 16, dtype=torch.float64), dim=1))

    def forward(self, x: Any, labels: Any = None) -> dict[str, Any]:
        queries = F.normalize(self.features(x), dim=1)
        with torch.no_grad():
            for key, p in zip(self.key_encoder.parameters(), (*self.first.parameters(), *self.middle.parameters())):  # noqa: B905
                key.mul_(0.9).add_(p, alpha=0.1)
            keys = F.normalize(self.key_encoder.features(1.1 * x + 0.1), dim=1)
        logits = torch.cat([(queries * keys).sum(1, keepdim=True), queries @ self.key_queue.T], 1) / 0.2
        if self.training:
            self.key_queue = torch.cat([keys, self.key_queue])[:16].detach()
        return {"loss": F.cross_entropy(logits, torch.zeros(len(x), dtype=torch.long)), "logits": logits}


class CarryingTrainer(Trainer):  # type: ignore[misc]
    """Carries a hidden state, a row for each row of the batch, as truncated backpropagation through time does."""

    hidden_state: Any = None

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **kwargs: Any) -> Any:
        hidden = torch.zeros_like(inputs["x"]) if self.hidden_state is None else self.hidden_state
        logits = model(inputs["x"] + 0.5 * hidden)["logits"]
        self.hidden_state = torch.tanh(inputs["x"] + logits[:, None]).detach()
        return F.mse_loss(logits, inputs["labels"])


class PreviousMeanTrainer(Trainer):  # type: ignore[misc]
    """The mean prediction of the batch before is subtracted."""

    previous_mean: Any = 0.0

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **kwargs: Any) -> Any:
        logits = model(inputs["x"])["logits"]
        loss = F.mse_loss(logits - self.previous_mean, inputs["labels"])
        self.previous_mean = logits.detach().mean()
        return loss


class NormalisedTrainer(Trainer):  # type: ignore[misc]
    """Divides the loss by its running mean."""

    loss_average = 1.0

    def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
        loss = super().compute_loss(*args, **kwargs)
        self.loss_average = 0.9 * self.loss_average + 0.1 * float(loss.detach())
        return loss / self.loss_average


class Dropping(Net):
    """Dropout, which draws from PyTorch's generator."""

    def features(self, x: Any) -> Any:
        return F.dropout(super().features(x), 0.2, self.training)


def _closure(model: Any) -> dict[str, Any]:
    """A loss function that counts its calls."""
    loss_calls = 0

    def loss(outputs: Any, labels: Any, num_items_in_batch: Any = None) -> Any:
        nonlocal loss_calls
        loss_calls += 1
        return F.mse_loss(outputs["logits"], labels) * 0.9**loss_calls

    return {"compute_loss_func": loss}


def _halved(trainer: Any) -> None:
    for p in trainer.model.parameters():
        p.register_hook(lambda grad: 0.5 * grad)


def _clamped(trainer: Any) -> None:
    for p in trainer.model.parameters():
        p.register_hook(lambda grad: grad.clamp(-0.05, 0.05))


class StepsInBackward(TrainerCallback):  # type: ignore[misc]
    """Takes steps while backward runs, by hooks that it registers when training begins."""

    def on_train_begin(self, *args: Any, model: Any = None, **kwargs: Any) -> None:
        def step(p: Any) -> None:
            with torch.no_grad():
                p.sub_(0.05 * p.grad)
            p.grad = None

        for p in model.parameters():
            p.register_post_accumulate_grad_hook(step)


class Pair(NamedTuple):
    x: Any
    labels: Any


class BatchTrainer(Trainer):  # type: ignore[misc]
    """Takes batches that are no flat dict; ``entries`` finds x and labels in one."""

    entries: Any = staticmethod(tuple)

    def _prepare_inputs(self, inputs: Any) -> Any:
        return inputs if isinstance(inputs, Pair) else super()._prepare_inputs(inputs)  # the Trainer's own fails

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **kwargs: Any) -> Any:
        x, labels = type(self).entries(inputs)
        return model(x, labels)["loss"]


def batches(name: str, collate: Callable[[Any], Any], entries: Callable[[Any], Any] = tuple) -> Kind:
    trainer = type(name, (BatchTrainer,), {"entries": staticmethod(entries)})
    return own(trainer, collate=lambda: collate)


def _ragged(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """All numbers of the batch in a row, and where each example begins."""
    lengths = [3 + i % 4 for i, _ in enumerate(rows)]
    values = torch.cat([row["x"][:length] for row, length in zip(rows, lengths, strict=True)])
    offsets = torch.tensor([0, *np.cumsum(lengths)[:-1].tolist()])
    return {"values": values, "offsets": offsets, "labels": torch.stack([row["labels"] for row in rows])}


class Ragged(Net):
    def forward(self, values: Any, offsets: Any, labels: Any = None) -> dict[str, Any]:  # type: ignore[override]
        ends = [*offsets[1:].tolist(), len(values)]
        x = torch.stack([F.pad(values[a:b], (0, 8 - (b - a))) for a, b in zip(offsets.tolist(), ends, strict=True)])
        return super().forward(x, labels)


TRAINERS: dict[str, Callable[[], Kind]] = {
    "plain": own,
    "generator: numpy, of the model": lambda: own(model=NumpyMasked),
    "generator: torch, of the Trainer": lambda: own(NoisyTrainer),
    "generator: numpy's and Python's own": lambda: own(GloballyNoisyTrainer, draws=True),
    "generator: PyTorch's own, by dropout": lambda: own(model=Dropping, draws=True),
    "generator: random.Random of a callback": lambda: own(ScaledByCallbackTrainer, callbacks=lambda: [RandomScale()]),
    "generator: random.Random of a collator": lambda: own(collate=RandomCollate),
    "iterator: second loader in compute_loss": lambda: own(SecondLoaderTrainer),
    "iterator: Python generator in compute_loss": lambda: own(CyclingTrainer),
    "average: AveragedModel in training_step": lambda: own(AveragingTrainer),
    "average: .data writes in training_step": lambda: own(DataAveragingTrainer),
    "average: mean teacher": lambda: own(MeanTeacherTrainer, follows="weight_average"),
    "average: callback at each micro-batch": lambda: own(callbacks=lambda: [EmaCallback()]),
    "counter: training_step": lambda: own(CountingTrainer),
    "counter: object made in compute_loss": lambda: own(AnnealingTrainer),
    "counter: closure of compute_loss_func": lambda: own(UncertaintyTrainer, extras=_closure),
    "metrics: defaultdict of defaultdicts": lambda: own(MetricsTrainer, metrics={"*": ("collected_values",)}),
    "step: FGM": lambda: own(FgmTrainer),
    "step: SAM": lambda: own(SamTrainer),
    "head: outside the model, zero_grad by callback": lambda: own(
        HeadTrainer, rows=lambda: points(3), callbacks=lambda: [ZeroGrad()]
    ),
    "head: compute_loss_func with a weight": lambda: own(
        UncertaintyTrainer, extras=_uncertain, callbacks=lambda: [ZeroGrad()]
    ),
    "hooks: gradients halved": lambda: own(prepare=_halved),
    "hooks: gradients clamped": lambda: own(prepare=_clamped),
    "hooks: steps in backward": lambda: own(callbacks=lambda: [StepsInBackward()]),
    "batch: tuple": lambda: batches("TupleTrainer", lambda rows: tuple(stacked(rows).values())),
    "batch: list of rows": lambda: batches(
        "RowsTrainer", lambda rows: [dict(row) for row in rows], lambda inputs: stacked(inputs).values()
    ),
    "batch: nested dicts": lambda: batches(
        "NestedTrainer",
        lambda rows: {"audio": {"x": stacked(rows)["x"]}, "text": {"labels": stacked(rows)["labels"]}},
        lambda inputs: (inputs["audio"]["x"], inputs["text"]["labels"]),
    ),
    "batch: NamedTuple": lambda: batches("NamedTrainer", lambda rows: Pair(**stacked(rows))),
    "batch: BatchEncoding": lambda: own(collate=lambda: lambda rows: BatchEncoding(stacked(rows))),
    "batch: values and offsets": lambda: own(model=Ragged, collate=lambda: _ragged),
    "carried: hidden state of each row": lambda: own(CarryingTrainer),
    "carried: mean of the batch before": lambda: own(PreviousMeanTrainer),
    "carried: running mean of the loss": lambda: own(NormalisedTrainer),
    "buffers: center loss": lambda: own(CenterTrainer, rows=lambda: points(3), callbacks=lambda: [ZeroGrad()]),
    "buffers: queue of momentum contrast": lambda: own(model=MomentumContrast),
}
