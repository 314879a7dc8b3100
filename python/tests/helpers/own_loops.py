"""Loops of one's own, each written by hand and with ``guarded_step``, on the same batches."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from asrconfig_go.guard import GuardedStep, guarded_step
from tiny_training import OUT_OF_MEMORY

CLASSES = 3
WORDS = 12
Batch = dict[str, Any]


class Classifier(torch.nn.Module):  # type: ignore[misc]
    """Two layers in float64 over features and a word; ``before`` is called with each batch's size, and may raise."""

    def __init__(self, dropout: float = 0.0, norm: bool = False) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(WORDS, 8)
        self.norm = torch.nn.BatchNorm1d(8) if norm else torch.nn.Identity()
        self.first, self.dropout = torch.nn.Linear(8, 16), torch.nn.Dropout(dropout)
        self.last = torch.nn.Linear(16, CLASSES)
        self.before: Callable[[int], None] = lambda _: None
        self.double()

    def forward(self, x: Any, word: Any, within: Callable[[Any], Any] = lambda hidden: hidden) -> Any:
        self.before(len(x))
        hidden = within(torch.tanh(self.first(self.norm(x + self.words(word)))))
        return self.last(self.dropout(hidden))


class _Failing(torch.autograd.Function):  # type: ignore[misc]
    """The same values; backward runs out of memory here, half way."""

    @staticmethod
    def forward(_: Any, values: Any) -> Any:
        return values.clone()

    @staticmethod
    def backward(_: Any, gradient: Any) -> Any:
        raise torch.cuda.OutOfMemoryError(OUT_OF_MEMORY)


class _Overflowing(torch.autograd.Function):  # type: ignore[misc]
    """The same values; gradients above a limit are infinite, as those of 16 bits."""

    @staticmethod
    def forward(context: Any, values: Any, limit: float) -> Any:
        context.limit = limit
        return values.clone()

    @staticmethod
    def backward(context: Any, gradient: Any) -> Any:
        return torch.where(gradient.abs() > context.limit, torch.inf, gradient), None


@dataclass
class Loss:
    """Cross entropy as a loss function. From batch ``number`` on, more than ``most`` clips do not fit in ``place``."""

    place: str = ""
    number: int = 0
    most: int = 4
    autocast: bool = False
    class_weights: Any = None
    batch: int = -1
    calls: int = 0

    def __call__(self, model: Any, batch: Batch) -> Any:
        self.calls += 1
        x, word, labels = batch["x"], batch["word"], batch["labels"]
        fails = self.batch >= self.number and len(x) > self.most
        with torch.autocast("cpu", torch.bfloat16, enabled=self.autocast):
            if fails and self.place == "forward":
                model.first(x)
                raise torch.cuda.OutOfMemoryError(OUT_OF_MEMORY)
            logits = model(x, word, _Failing.apply) if fails and self.place == "backward" else model(x, word)
            logits = _Overflowing.apply(logits, batch.get("limit", torch.inf))
            if fails and self.place == "loss":
                raise torch.cuda.OutOfMemoryError(OUT_OF_MEMORY)
            return torch.nn.functional.cross_entropy(logits, labels, self.class_weights)


def batches(count: int, clips: int = 8) -> list[Batch]:
    """Always the same; every third one is smaller by two clips."""
    source = torch.Generator().manual_seed(1)
    sizes = [clips - 2 * (i % 3 == 2) for i in range(count)]
    return [
        {
            "x": torch.randn(size, 8, generator=source).double(),
            "word": torch.randint(0, WORDS, (size,), generator=source),
            "labels": torch.randint(0, CLASSES, (size,), generator=source),
        }
        for size in sizes
    ]


@dataclass
class Setting:
    """What both loops are made of."""

    accumulation: int = 1
    max_grad_norm: float | None = None
    scaled: bool = False
    scheduled: bool = False
    model: Callable[[], Any] = Classifier
    optimizer: Callable[..., Any] = torch.optim.AdamW


@dataclass
class Run:
    """What came of a loop: its parts, losses, rates, and the gradients of each step of the optimizer."""

    model: Any
    optimizer: Any
    scheduler: Any
    scaler: Any
    losses: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    gradients: list[Any] = field(default_factory=list)
    random: list[Any] = field(default_factory=list)
    step: Any = None

    def begin(self) -> Run:
        self.start = self.weights()
        self.optimizer.register_step_pre_hook(lambda *_: self.gradients.append(self._gradients()))
        return self

    def weights(self) -> Any:
        return torch.cat([p.detach().flatten() for p in self.model.parameters()])

    def _gradients(self) -> Any:
        return torch.cat([p.grad.flatten() for p in self.model.parameters() if p.grad is not None])

    def note(self, loss: Any) -> None:
        """A batch is over."""
        self.losses.append(float(loss.detach()))
        self.rates.append(self.optimizer.param_groups[0]["lr"])
        numpy = np.random.get_state(legacy=False)["state"]["key"].tolist()
        self.random.append((torch.get_rng_state(), numpy, random.getstate()))

    def distance(self, other: Run) -> float:
        """How far the weights are apart, of the movement of ``other``."""
        return float((self.weights() - other.weights()).norm() / (other.weights() - other.start).norm())


def prepared(setting: Setting) -> Run:
    """Model, optimizer, scheduler and scaler, always the same."""
    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)
    model = setting.model()
    optimizer = setting.optimizer(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, 20) if setting.scheduled else None
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=2) if setting.scaled else None
    return Run(model, optimizer, scheduler, scaler).begin()


def by_hand(setting: Setting, data: Sequence[Batch], loss_fn: Any = None) -> Run:
    """The loop without a guard, as PyTorch's examples write it."""
    run, loss_fn = prepared(setting), loss_fn or Loss()
    for number, batch in enumerate(data, start=1):
        loss = loss_fn(run.model, batch)
        share = loss / setting.accumulation
        (share if run.scaler is None else run.scaler.scale(share)).backward()
        if number % setting.accumulation == 0 or number == len(data):
            _step_by_hand(run, setting)
        run.note(loss)
    return run


def _step_by_hand(run: Run, setting: Setting) -> None:
    optimizer, scaler, skipped = run.optimizer, run.scaler, False
    if setting.max_grad_norm is not None:
        if scaler is not None:
            scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(run.model.parameters(), setting.max_grad_norm)
    if scaler is None:
        optimizer.step()
    else:
        scale = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        skipped = scaler.get_scale() < scale
    if run.scheduler is not None and not skipped:
        run.scheduler.step()
    optimizer.zero_grad()


def guarded(setting: Setting, data: Sequence[Any], loss_fn: Any = None, **options: Any) -> Run:
    """The same with a guard; its ``GuardedStep`` is ``run.step``."""
    run, loss_fn = prepared(setting), loss_fn or Loss()
    step = run.step = step_of(run, setting, loss_fn, **options)
    for number, batch in enumerate(data):
        loss_fn.batch = number
        loss = step(batch)
        if number == len(data) - 1:
            step.finish()
        run.note(loss)
    return run


def step_of(run: Run, setting: Setting, loss_fn: Any, **options: Any) -> GuardedStep:
    """The guarded step of a run that is prepared."""
    return guarded_step(
        run.model, run.optimizer, loss_fn, scaler=run.scaler, scheduler=run.scheduler,
        accumulation=setting.accumulation, max_grad_norm=setting.max_grad_norm, **options,
    )  # fmt: skip
