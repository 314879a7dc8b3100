"""The shapes of small trainings, what one comes to, and memory that runs out in it."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"

import torch

OOM = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 14.75 GiB"
ROWS, STEPS, FAILING = 32, 6, 2  # four steps an epoch; the error is in the third step, which measures no rule


class Shape(NamedTuple):
    """The size of a micro-batch and the gradient accumulation steps."""

    batch: int
    accumulation: int

    def __str__(self) -> str:
        return f"{self.batch} × {self.accumulation}"


class Cell(NamedTuple):
    """One column of the table; ``place`` is where memory runs out."""

    shape: Shape
    place: str | None

    def __str__(self) -> str:
        return f"{self.shape}, {self.place or 'undisturbed'}"


SHAPES = (Shape(8, 1), Shape(4, 2))
CELLS = tuple(Cell(shape, place) for shape in SHAPES for place in (None, "forward", "backward"))


@dataclasses.dataclass(frozen=True)
class Kind:
    """One training; ``trainer`` makes everything that a run may change, in an output folder."""

    trainer: Callable[[Shape, str], Any]
    metrics: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    """Attributes that an entry of the log is computed from, "*" for all entries that are not the Trainer's own: who
    names one of them names the entry."""
    follows: str = ""
    """State that the loss is computed from: where it is named as not put back, weights and log follow it."""
    draws: bool = False
    """Micro-batches draw from the generators that everyone uses: other ones after an error, as the guard documents."""


class Item(NamedTuple):
    """A value of the state, and the module or the name whose tensors are compared together."""

    value: Any
    group: str


@dataclasses.dataclass
class Run:
    """What one training came to."""

    weights: list[torch.Tensor] = dataclasses.field(default_factory=list)
    """At the beginning and after each optimizer step."""
    state: dict[str, Item] = dataclasses.field(default_factory=dict)
    log: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    arrivals: dict[str, int] = dataclasses.field(default_factory=dict)
    raised: int = 0
    error: Exception | None = None
    texts: list[str] = dataclasses.field(default_factory=list)
    """Events, notes and warnings of the guard."""
    rule: str = ""
    """The guard's rule, or why the training is left alone."""


class Memory:
    """Memory that runs out once, at the ``nth`` arrival at ``place`` in the optimizer step ``FAILING``.

    It counts the arrivals of that step. Hooks are functions, not methods: a copy of a model shares them.
    """

    def __init__(self, place: str | None = None, nth: int = 0) -> None:
        self.place, self.nth, self.raised = place, nth, 0
        self.arrivals: dict[str, int] = {"forward": 0, "backward": 0}
        self.nodes: list[Any] = []

    def watch(self, trainer: Any) -> None:
        """Follow the forwards of the Trainer's model, and the gradient of a weight in the middle."""
        model = trainer.model

        def arrived(place: str) -> None:
            if trainer.state.global_step == FAILING:
                self.arrivals[place] += 1
                if place == self.place and not self.raised and self.arrivals[place] > self.nth:
                    self.raised += 1
                    raise torch.OutOfMemoryError(OOM)

        def forward(module: Any, *_: Any) -> None:
            if module.training and torch.is_grad_enabled():
                arrived("forward")

        model.register_forward_hook(forward)
        weights = [p for p in model.parameters() if p.requires_grad]
        weight = weights[len(weights) // 2]
        # Where its gradient arrives, as DDP does it: hooks of the weight would be the user's.
        node = weight.expand_as(weight).grad_fn.next_functions[0][0]
        node.register_prehook(lambda _: arrived("backward"))
        self.nodes.append(node)
