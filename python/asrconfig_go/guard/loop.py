"""What the engine asks of a training loop, whose adapter answers: a Trainer, or a loop of the user's own."""

from __future__ import annotations

import logging
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from .._core.batches import Extent, batch_size, extent, pick
from .._core.padding import trimmed

version_of: Callable[[Any], int] = operator.attrgetter("_version")
"""How often a tensor was changed in place."""
logger: logging.Logger = logging.getLogger("asrconfig_go")


Batch: TypeAlias = "Mapping[str, torch.Tensor] | Sequence[torch.Tensor] | torch.Tensor"
"""A collated batch, whose entries have a row for each clip."""
Weight: TypeAlias = "torch.Tensor | float"
"""What the loss of a micro-batch is multiplied by."""
Split: TypeAlias = Callable[[Any, int], list[Any]]
"""A user's function from a batch and a size to a list of batches."""
Key = tuple[str, Any, Any]
"""Path and owner, and the name of an attribute or an entry; ``ABSENT`` for the whole of a sequence."""


@dataclass(slots=True)
class Before:
    """What there was before a step.

    Attributes:
        random: The states of Python's, numpy's and torch's generators, and ``gpu`` those of the GPUs.
        is_full: Whether everything was looked at; ``contents`` then holds it, by path and owner.
        generators: Others that the loop holds, with their states.
        values: What steps are known to change.
        versions: Tensors with their version counters.
        interrupted: The batch normalisation in which the step then failed, if it failed in one.
    """

    random: dict[str, Any]
    gpu: list[torch.Tensor]
    is_full: bool
    generators: Sequence[tuple[Any, Any]] = ()
    values: Sequence[tuple[Key, Any]] = ()
    versions: Sequence[tuple[str, torch.Tensor, int]] = ()
    contents: list[tuple[str, Any, Any]] = field(default_factory=list)
    interrupted: _BatchNorm | None = None


@dataclass(slots=True)
class Call:
    """One collated batch of the window, and what its loop passes beside it."""

    inputs: Batch
    """None once all its clips were left out."""
    before: Before
    versions: list[tuple[torch.Tensor, int]]
    """Of the batch's tensors, which count how often each was changed in place."""
    fit: Callable[[Any], Any]
    """Returns a batch of some of its clips as the model can train on it."""
    batch: Batch | None = None
    """The batch that the loop has, whose entries its step may replace."""
    arguments: Any = None
    replacements: Sequence[Any] = ()
    """Batches that the user's function made of clips that were too long."""
    loss: float | torch.Tensor = 0.0
    reported: float | torch.Tensor = 0.0
    """The weighted loss, and what of it the loop has been given."""
    rows: list[int] | None = None
    """The numbers in the collated batch of the clips that are left; None while all are."""
    _size: tuple[Any, int, Extent] | None = None

    def size(self) -> tuple[int, Extent]:
        """Its clips, and the extent of each."""
        if self._size is None or self._size[0] is not self.inputs:
            self._size = self.inputs, batch_size(self.inputs), extent(self.inputs)
        return self._size[1:]

    def take_out(self, row: int, lengths: list[int]) -> Any:
        """Take a clip out, and return it as a batch of one; the others are padded to the longest of them.

        ``lengths`` are those of all without padding.
        """
        others = [i for i in range(len(lengths)) if i != row]
        clip = trimmed(pick(self.inputs, [row]), lengths[row])
        remaining = trimmed(pick(self.inputs, others), max(lengths[i] for i in others)) if others else None
        self.inputs = None if remaining is None else self.fit(remaining)
        rows = list(range(len(lengths))) if self.rows is None else self.rows
        self.rows = [rows[i] for i in others]
        return clip

    @property
    def changed(self) -> bool:
        """Whether the step has changed the batch in place, so that it cannot be computed again."""
        return any(tensor._version != version for tensor, version in self.versions)


class UnfitStepError(Exception):
    """Why micro-batches of this step cannot be weighted; a sentence's end."""


class Loop(ABC):
    """A training loop that computes one collated batch at a time, and takes an optimizer step for each window.

    Attributes:
        name: What errors call it: the Trainer's class, or ``guarded_step``.
        labels: The entry of a batch that holds its labels.
        rank: The process, of several.
        notes: What a user should know of this training; each was logged once.
    """

    name: str
    labels: str = "labels"
    rank: int = 0
    notes: tuple[str, ...] = ()

    @property
    def output(self) -> Path | None:
        """The folder where records of what went wrong are written; None: nowhere."""
        return None

    @property
    def epoch(self) -> float | None:
        """Epochs that were made, where that is known."""
        return None

    def settings(self) -> dict[str, Any]:
        """What decides how a batch is computed, for a batch that is replayed: precision and others by name."""
        return {}

    @property
    @abstractmethod
    def model(self) -> torch.nn.Module:
        """The model that computes, without wrappers of several processes."""

    @property
    @abstractmethod
    def optimizer(self) -> Any:
        """The optimizer; None before there is one."""

    @property
    @abstractmethod
    def step_number(self) -> int:
        """Optimizer steps that were made."""

    @property
    @abstractmethod
    def is_coarse(self) -> bool:
        """Whether it computes in 16 bits."""

    @property
    def own_step(self) -> bool:
        """Whether its step is the user's, and may do anything."""
        return False

    @abstractmethod
    def roots(self) -> Mapping[str, Any]:
        """The objects whose state a step may change, the model among them, by the names that messages call them."""

    @abstractmethod
    def compute(self, call: Call, part: Batch, weight: Weight, *, whole_window: bool) -> Any:
        """Forward and backward of a micro-batch of ``call``; returns its loss, detached, times ``weight``.

        Args:
            call: The batch that ``part`` is of.
            part: A batch, the whole or a part of that.
            weight: What loss and gradient are multiplied by; None of a batch that the loop computes as it is.
            whole_window: Whether ``weight`` is a share of the window, so that the loop divides by nothing itself.
        """

    @abstractmethod
    def gradient(self, call: Call, part: Batch, scale: float) -> None:
        """Leave the gradient of ``scale`` times the loss of ``part`` in the parameters, for a measurement.

        Raises ``UnfitStepError`` for a step that cannot be weighted.
        """

    @abstractmethod
    def loss(self, call: Call, part: Batch) -> Any:
        """The loss of ``part`` alone, with its graph where gradients are enabled."""

    def prepare(self) -> None:  # noqa: B027
        """Bring the model into training mode, where the loop's own step does that first."""

    def say(self, text: str) -> None:
        """Keep a text in ``notes`` and log it, unless that was done before."""
        if text and text not in self.notes:
            self.notes += (text,)
            logger.warning(text)

    def measuring(self) -> AbstractContextManager[None]:
        """Inside, nothing that is computed is logged."""
        return nullcontext()

    def parameters(self) -> list[torch.Tensor]:
        """All that the optimizer or autograd touches, each once."""
        groups = getattr(self.optimizer, "param_groups", ())
        of_optimizer = [p for group in groups for p in group["params"]]
        trained = [p for p in self.model.parameters() if p.requires_grad]
        return list({id(p): p for p in (*trained, *of_optimizer)}.values())

    @property
    def title(self) -> str:
        """How messages name its step."""
        hooks = ", whose weights have hooks that run in backward," if self.has_hooks() else ""
        return f"the step of {self.name} with {type(self.model).__name__}{hooks}"

    def uncleared(self) -> list[torch.Tensor]:
        """The parameters whose gradients the loop does not clear itself after each optimizer step."""
        return self.parameters()

    def has_hooks(self) -> bool:
        """Whether hooks of weights run in backward, which may change gradients or weights."""
        return any(p._backward_hooks or getattr(p, "_post_accumulate_grad_hooks", None) for p in self.parameters())
