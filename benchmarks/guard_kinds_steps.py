"""Kinds with a ``training_step`` of their own, for ``guard_kinds.py``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from guard_kinds_runs import Kind, Pad
from transformers import Trainer

from tiny_training import Points, Regression

ROWS = 24


def points(count: int = ROWS) -> list[dict[str, Any]]:
    """Six numbers and one to be found from them."""
    return [Points(count)[i] for i in range(count)]


def regression(**changes: Any) -> Kind:
    """A regression, which the Trainer accumulates right by itself."""
    return Kind(**{"model": Regression, "rows": points(), "collate": Pad(), "rate": 0.1, **changes})


class _Step(Trainer):  # type: ignore[misc]
    """``training_step`` as it is written for a change of the loss in ``changed``."""

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
        model.train()
        inputs = self._prepare_inputs(inputs)
        with self.compute_loss_context_manager():
            loss = self.changed(model, inputs, num_items_in_batch)
        loss = loss / self.args.gradient_accumulation_steps
        self.run_backward(loss)
        return loss.detach()

    def run_backward(self, loss: Any) -> None:
        self.accelerator.backward(loss)

    def changed(self, model: Any, inputs: Any, items: Any) -> Any:
        return self.compute_loss(model, inputs, num_items_in_batch=items)


class RegularisedTrainer(_Step):
    """Weight penalty between ``compute_loss`` and backward."""

    def changed(self, model: Any, inputs: Any, items: Any) -> Any:
        return super().changed(model, inputs, items) + 0.1 * sum(p.square().sum() for p in model.parameters())


class ScaledTrainer(_Step):
    def changed(self, model: Any, inputs: Any, items: Any) -> Any:
        return 0.5 * super().changed(model, inputs, items)


class RDropTrainer(_Step):
    """Two forwards that should agree; the second of weaker inputs, since dropout is off."""

    def changed(self, model: Any, inputs: Any, items: Any) -> Any:
        first, one = self.compute_loss(model, dict(inputs), return_outputs=True)
        second, two = self.compute_loss(model, {**inputs, "x": 0.8 * inputs["x"]}, return_outputs=True)
        return (first + second) / 2 + torch.nn.functional.mse_loss(one["logits"], two["logits"])


class OwnBackwardTrainer(_Step):
    def run_backward(self, loss: Any) -> None:
        loss.backward()


class ModelOnlyTrainer(_Step):
    """Calls the model and no ``compute_loss``."""

    def changed(self, model: Any, inputs: Any, items: Any) -> Any:
        return model(**inputs)["loss"]


class PenaltyTrainer(Trainer):  # type: ignore[misc]
    """Adds a penalty with a backward of its own behind the Trainer's step."""

    def training_step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        loss = super().training_step(model, inputs, *args, **kwargs)
        penalty = 0.1 * sum(p.square().sum() for p in model.parameters()) / self.args.gradient_accumulation_steps
        self.accelerator.backward(penalty)
        return loss + penalty.detach()


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
        gradients = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
        model.zero_grad()
        loss = super().training_step(model, dict(inputs), *args, **kwargs)
        before = [p.data.clone() for p in model.parameters()]
        norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
        for p in model.parameters():
            p.data.add_(p.grad, alpha=0.1 / float(norm))
        model.zero_grad()
        super().training_step(model, dict(inputs), *args, **kwargs)
        for p, value, grad in zip(model.parameters(), before, gradients, strict=True):
            p.data.copy_(value)
            if grad is not None:
                p.grad.add_(grad)
        return loss


class SkippingTrainer(Trainer):  # type: ignore[misc]
    """Leaves batches with a certain sample out."""

    def training_step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if bool((inputs["index"] == 7).any()):
            return torch.zeros(())
        return super().training_step(model, inputs, *args, **kwargs)


class ClippedTrainer(Trainer):  # type: ignore[misc]
    """Clips the gradients of each micro-batch."""

    def training_step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        loss = super().training_step(model, inputs, *args, **kwargs)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        return loss


class TimedTrainer(Trainer):  # type: ignore[misc]
    """Only counts its steps: nothing of the training changes."""

    steps = 0

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        self.steps += 1
        return super().training_step(*args, **kwargs)


class WarmingTrainer(Trainer):  # type: ignore[misc]
    """The loss weighs more from one micro-batch to the next."""

    calls = 0

    def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
        loss = super().compute_loss(*args, **kwargs)
        if not self.model.training:
            return loss
        self.calls += 1
        return loss * min(1.0, self.calls / 10)


def _clamped(trainer: Any) -> None:
    for p in trainer.model.parameters():
        p.register_hook(lambda grad: grad.clamp(-0.05, 0.05))


def _steps_in_backward(trainer: Any) -> None:
    def step(p: Any) -> None:
        with torch.no_grad():
            p.sub_(0.05 * p.grad)
        p.grad = None

    for p in trainer.model.parameters():
        p.register_post_accumulate_grad_hook(step)


def _patched(trainer: Any) -> None:
    """A function in the place of the method, as notebooks do it."""
    original = trainer.training_step

    def training_step(model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        return original(model, {**inputs, "x": 2 * inputs["x"]}, *args, **kwargs)

    trainer.training_step = training_step


_OWN = ("training_step",)
STEPS: dict[str, Callable[[], Kind]] = {
    "step: regulariser": lambda: regression(trainer=RegularisedTrainer, names=_OWN),
    "step: scaled loss": lambda: regression(trainer=ScaledTrainer, names=_OWN),
    "step: R-Drop": lambda: regression(trainer=RDropTrainer, names=_OWN),
    "step: loss.backward()": lambda: regression(trainer=OwnBackwardTrainer, names=_OWN),
    "step: without compute_loss": lambda: regression(trainer=ModelOnlyTrainer, names=_OWN),
    "step: second backward": lambda: regression(trainer=PenaltyTrainer, names=_OWN),
    "step: FGM": lambda: regression(trainer=FgmTrainer, own_shape=True, names=_OWN),
    "step: SAM": lambda: regression(trainer=SamTrainer, own_shape=True, names=_OWN),
    "step: leaves batches out": lambda: regression(trainer=SkippingTrainer, own_shape=True, names=_OWN),
    "step: clips each micro-batch": lambda: regression(trainer=ClippedTrainer, own_shape=True, names=_OWN),
    "step: only counted": lambda: regression(trainer=TimedTrainer),
    "step: patched, changes inputs": lambda: regression(prepare=_patched, names=_OWN),
    "loss: warms up by calls": lambda: regression(trainer=WarmingTrainer, own_shape=True, names=("compute_loss",)),
    "hooks: gradients clamped": lambda: regression(prepare=_clamped, own_shape=True, names=("hook",)),
    "hooks: steps in backward": lambda: regression(prepare=_steps_in_backward, own_shape=True, names=("hook",)),
}
