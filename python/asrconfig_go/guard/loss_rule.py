"""What the loss of a batch is divided by, and so the weight of a micro-batch.

An optimizer step follows the gradient of one loss over all its clips. With the loss of a micro-batch i of n_i clips and
t_i tokens, and N and T those of the whole, it is the sum of

- ``mean``: n_i / N · loss_i, where the loss is a mean over clips: CTC with ``ctc_loss_reduction="mean"``;
- ``token_mean``: t_i / T · loss_i, where it is a mean over labels other than padding: Whisper, cross entropy;
- ``shifted_token_mean``: the same over ``labels[:, 1:]``, where the next token is predicted and no
  ``num_items_in_batch`` is passed;
- ``sum``: loss_i, where it is a sum, or is divided by ``num_items_in_batch``, which counts the whole step already.

The rule is given by the user, or that of a loss in the table; else it is measured, once a batch has run out of memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, get_args

import torch

from .._core.batches import batch_size, entries
from .._core.declared import WeightRule
from ..errors import InvalidArgumentError
from .loop import Batch, Weight
from .loss_table import Loss

RULES: tuple[WeightRule, ...] = get_args(WeightRule)
PADDING = -100
_DECIDES = 1e-6  # weights that differ by less are one
_CONFIRMED = 16  # measurements, before they become rare
GivenRule = WeightRule | Callable[[Any], Any]


class LossRule:
    """The rule of one training.

    Attributes:
        unfit: Why the loss has no rule, once that was measured; "" before, and where it has one.
    """

    def __init__(self, labels: str, rule: GivenRule | None = None) -> None:
        self._labels, self._user_rule = labels, rule
        self._table: Loss | None = None
        self.passes_items: Callable[[], bool] = lambda: False
        """Whether the model's forward is passed ``num_items_in_batch``."""
        self._fitting: tuple[str, ...] = ()
        self._splits = 0
        self._due = True
        self.has_hooks = False
        """Whether hooks of weights may make a gradient other than that of the table's loss."""
        self.unfit = ""
        self.is_given: bool = rule is not None
        """Whether the user has passed it."""

    def begin(self, table: Loss | None) -> None:
        """A training begins, whose loss is ``table``'s."""
        self._table = table
        self._fitting, self._splits, self._due, self.unfit = (), 0, True, ""

    @property
    def name(self) -> str | None:
        """One of ``RULES``, or "given" for a function of the user's; None while it is unknown."""
        if self._user_rule is not None:
            return self._user_rule if isinstance(self._user_rule, str) else "given"
        if self._table is not None and not self.has_hooks:
            return "sum" if self._table.takes_num_items and self.passes_items() else self._table.rule
        return self._fitting[0] if self._fitting else None

    @property
    def in_evaluation(self) -> str | None:
        """The rule of single batches, whose ``num_items_in_batch`` is theirs alone: by the table, or as given."""
        return self._table.rule if self._table is not None else self.name if self.is_given else None

    @property
    def is_certain(self) -> bool:
        """Whether it is given or of the table: then micro-batches of a window are weighted from the first step on."""
        return self._user_rule is not None or (self._table is not None and not self.has_hooks)

    @property
    def trims(self) -> bool:
        """Whether padding may be removed from micro-batches."""
        return self._table is not None and self._table.trims and not self.has_hooks

    def count(self, batch: Batch, rule: str | None = None) -> Any:
        """What the loss of ``batch`` is divided by: a number, or a tensor on the batch's device."""
        rule = rule or self.name
        if rule == "given" and callable(self._user_rule):
            return _checked(self._user_rule(batch))
        named = entries(batch)
        labels: Any = named.get(self._labels)
        if rule in ("mean", None) or not hasattr(labels, "shape"):
            return batch_size(batch)
        if rule == "shifted_token_mean":
            labels = named["shift_labels"] if "shift_labels" in named else labels[..., 1:]
        counted: Any = labels != (PADDING if self._table is None else self._table.padding)
        if self._table is not None and self._table.masked:
            counted = counted & (named["attention_mask"][..., -counted.shape[-1] :] != 0)
        return counted.sum()

    def share(self, part: Batch, total: float | torch.Tensor, rule: str | None = None) -> Any:
        """The weight of ``part`` in ``total``, which ``count`` returned of the whole."""
        if (rule or self.name) == "sum":
            return 1.0
        count = self.count(part, rule)
        if isinstance(count, torch.Tensor):
            count = count.double()  # a quotient of whole numbers has 32 bits
        return count / (total.clamp(min=1) if isinstance(total, torch.Tensor) else max(total, 1))

    def shares(self, whole: Batch, parts: Sequence[Batch], rule: str | None = None) -> list[Any]:
        """The weight of each of the ``parts`` in the ``whole``."""
        total = self.count(whole, rule)
        return [self.share(part, total, rule) for part in parts]

    def errors(
        self, whole: Batch, together: torch.Tensor, parts: Sequence[Batch], measured: Sequence[torch.Tensor]
    ) -> dict[str, float]:
        """The relative error of the weighted sum of what was ``measured`` of the parts, by each rule."""
        errors = dict[str, float]()
        for rule in RULES:
            shares = [torch.as_tensor(share, device=together.device) for share in self.shares(whole, parts, rule)]
            total = sum(weighted(value, share) for value, share in zip(measured, shares, strict=True))
            error = float((total - together).norm() / together.norm().clamp(min=1e-300))
            errors[rule] = error if math.isfinite(error) else math.inf
        return errors

    def are_alike(self, rules: Sequence[str], whole: Batch, parts: Sequence[Batch]) -> bool:
        """Whether the ``rules`` give the parts of a batch the same weights."""
        first, *others = ([float(share) for share in self.shares(whole, parts, rule)] for rule in rules)
        return all(math.isclose(a, b, rel_tol=_DECIDES) for other in others for a, b in zip(first, other, strict=True))

    def is_due(self) -> bool:
        """Whether a measured rule is to be measured again before the next split, as losses may change."""
        self._splits += 1
        rare = self._splits & (self._splits - 1)
        due = self._due or len(self._fitting) != 1 or self._splits <= _CONFIRMED or not rare
        self._due = False
        return not self.is_certain and due

    def ask_again(self) -> None:
        """An epoch begins, with which losses may change."""
        self._due = True

    def take(self, fitting: tuple[str, ...], unfit: str = "") -> None:
        """What a measurement came to."""
        self._fitting, self.unfit = fitting, unfit


def _checked(count: object) -> Any:
    """What a user's function returned; raises ``InvalidArgumentError`` unless it is a number."""
    if isinstance(count, torch.Tensor) and count.numel() == 1:
        return count.reshape(())
    if hasattr(count, "__float__") and not isinstance(count, torch.Tensor):
        return count
    kind = f"a tensor of shape {tuple(count.shape)}" if isinstance(count, torch.Tensor) else type(count).__name__
    raise InvalidArgumentError(f"rule returns {kind}", "return one number: what the loss of the batch divides by")


def check_gradient(loss: torch.Tensor) -> None:
    """Raise ``InvalidArgumentError`` for a loss in which no parameter that is trained has a part."""
    if not loss.requires_grad:
        raise InvalidArgumentError(
            "the loss has no gradient", "unfreeze parameters; do not detach the loss or compute it under no_grad"
        )


def factor(weight: Weight, loss: torch.Tensor) -> Any:
    """A weight in the precision of the loss that it multiplies, 32 bits at least."""
    if not isinstance(weight, torch.Tensor):
        return weight
    return weight.to(loss.dtype if loss.dtype == torch.float64 else torch.float32)


def weighted(loss: torch.Tensor, weight: Weight) -> Any:
    """The share of a loss in that of the whole; nothing of a part that counts nothing, whose mean may be NaN."""
    if not isinstance(loss, torch.Tensor):
        loss = torch.tensor(float(loss))
    loss = loss.detach() if loss.requires_grad else loss
    if not isinstance(weight, torch.Tensor):
        return loss if weight == 1.0 else loss * weight
    return torch.where(weight == 0, torch.zeros_like(loss), loss * factor(weight, loss))
