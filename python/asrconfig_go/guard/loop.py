"""The interface of training loops that the engine uses; a Trainer and a user's own loop implement it."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from .._core.batches import Extent, batch_size, clip_lengths, extent, pick
from .._core.output import logger
from .._core.padding import trimmed

version_of: Callable[[Any], int] = operator.attrgetter("_version")
"""How often a tensor was changed in place."""
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
    """The state before a step.

    Attributes:
        random: The states of Python's, NumPy's and PyTorch's generators on the CPU.
        gpu: The states of the GPUs' generators.
        is_full: Whether everything that can be reached was noted, in ``contents``.
        generators: Further generators that the loop holds, with their states.
        values: The values of attributes that steps are known to change.
        versions: Tensors with their paths and version counters.
        contents: Paths, owners, and the owners' attributes or elements.
        interrupted: The batch normalisation in which the step failed later, if it failed in one.
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
    """One collated batch of the accumulation window, and what its loop passes with it."""

    inputs: Batch
    """None once all its clips were left out."""
    before: Before
    versions: list[tuple[torch.Tensor, int]]
    """The batch's tensors with their version counters, which rise with each change in place."""
    fit: Callable[[Any], Any]
    """Pads a batch of some of its clips where the model takes no shorter ones."""
    batch: Batch | None = None
    """The object that the loop has passed, whose entries its step may replace."""
    arguments: Any = None
    replacements: Sequence[Any] = ()
    """Batches that the user's function made of clips that were too long."""
    loss: float | torch.Tensor = 0.0
    """The weighted loss."""
    reported: float | torch.Tensor = 0.0
    """The loss that was returned to the loop."""
    rows: list[int] | None = None
    """The places of its clips in the collated batch; None while none was taken out."""

    def size(self) -> tuple[int, Extent]:
        """The number of its clips, and their extent."""
        return batch_size(self.inputs), extent(self.inputs)

    def take_out(self, row: int) -> Any:
        """Take the clip in ``row`` of ``inputs`` out, and return it as a batch of one.

        The others are padded to the longest of them.
        """
        lengths = clip_lengths(self.inputs)
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
    """Why micro-batches of a step cannot be weighted, as the end of a sentence."""


class Loop(ABC):
    """A training loop that computes one collated batch at a time, and takes an optimizer step for each window.

    Attributes:
        name: Its name in messages: the Trainer's class, or ``guarded_step``.
        labels: The entry of a batch that holds its labels.
        rank: The rank of this process.
        notes: What a user should know of this training; each note was logged once.
    """

    name: str
    labels: str = "labels"
    rank: int = 0
    notes: tuple[str, ...] = ()

    @property
    def output(self) -> Path | None:
        """The folder for records of what went wrong; None where none are written."""
        return None

    @property
    def epoch(self) -> float | None:
        """The epochs so far, with a fraction; None where that is unknown."""
        return None

    def settings(self) -> dict[str, Any]:
        """The settings by which a batch is computed, such as precision, by name; saved with a batch for its replay."""
        return {}

    @property
    @abstractmethod
    def model(self) -> torch.nn.Module:
        """The model, without the wrapper of distributed training."""

    @property
    @abstractmethod
    def optimizer(self) -> Any:
        """The optimizer; None before there is one."""

    @property
    @abstractmethod
    def step_number(self) -> int:
        """The optimizer steps so far."""

    @property
    @abstractmethod
    def is_in_16_bits(self) -> bool:
        """Whether losses and gradients are computed in 16 bits, and so rounded."""

    @property
    def is_custom(self) -> bool:
        """Whether the user has written the training step, so that it may do anything."""
        return False

    @abstractmethod
    def roots(self) -> Mapping[str, Any]:
        """The objects whose state a step may change, among them the model, by their names in messages."""

    @abstractmethod
    def compute(self, call: Call, part: Batch, weight: Weight, *, whole_window: bool) -> Any:
        """Compute forward and backward of ``part``, the batch itself or a part of it; returns the loss, detached.

        Loss and gradient are multiplied by ``weight``; with None the loop computes the batch as it is. With
        ``whole_window`` the weight is a share of the accumulation window, so that the loop must not divide by the
        accumulation steps.
        """

    @abstractmethod
    def gradient(self, call: Call, part: Batch, scale: float) -> None:
        """Compute the gradient of ``scale`` times the loss of ``part``, for a measurement; it stays in the parameters.

        Raises ``UnfitStepError`` for a step that cannot be weighted.
        """

    @abstractmethod
    def loss(self, call: Call, part: Batch) -> Any:
        """The loss of ``part`` alone, with its graph where gradients are enabled."""

    def prepare(self) -> None:  # noqa: B027
        """Bring the model into training mode, where the loop's own step does that first."""

    def say(self, text: str, *, of_all: bool = False) -> None:
        """Add a text to ``notes`` and log it, unless it is among them; what holds ``of_all`` ranks the first logs."""
        if text and text not in self.notes:
            self.notes += (text,)
            if not (of_all and self.rank):
                logger.warning(text)

    def measuring(self) -> AbstractContextManager[None]:
        """Suspend the loop's logging while a measurement computes batches."""
        return nullcontext()

    def parameters(self) -> list[torch.Tensor]:
        """The parameters of the optimizer, and those of the model that require gradients, each once."""
        groups = getattr(self.optimizer, "param_groups", ())
        of_optimizer = [p for group in groups for p in group["params"]]
        trained = [p for p in self.model.parameters() if p.requires_grad]
        return list({id(p): p for p in (*trained, *of_optimizer)}.values())

    @property
    def title(self) -> str:
        """The name of its step in messages."""
        hooks = ", whose weights have hooks that run in backward," if self.has_hooks() else ""
        return f"the step of {self.name} with {type(self.model).__name__}{hooks}"

    def uncleared(self) -> list[torch.Tensor]:
        """The parameters whose gradients the loop does not clear itself after each optimizer step."""
        return self.parameters()

    def has_hooks(self) -> bool:
        """Whether hooks of weights run in backward, which may change gradients or weights."""
        return any(p._backward_hooks or getattr(p, "_post_accumulate_grad_hooks", None) for p in self.parameters())
