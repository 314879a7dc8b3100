"""The weight of each micro-batch in its optimizer step, so that the step does not depend on the split.

An optimizer step follows the gradient of one loss over all its samples. With the loss of a micro-batch i of n_i samples
and t_i tokens (labels other than -100), and N and T those of the whole step, it is the sum of

- ``mean``: n_i / N · loss_i, where the loss is a mean over samples: CTC with ``ctc_loss_reduction="mean"``;
- ``token_mean``: t_i / T · loss_i, where it is a mean over tokens: Whisper, cross entropy, a label smoother;
- ``sum``: loss_i, where it is a sum, or is divided by ``num_items_in_batch``, which speaks of the whole step already.

The rule is measured, not inferred from names: see ``losses``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import torch

from .._base.choices import WeightRule
from .._base.errors import InvalidArgumentError
from ..batching.collated_batch import batch_size, copied, pick, piece
from .loss_kind import ctc_reduction, loss_kind

RULES: tuple[WeightRule, ...] = get_args(WeightRule)
_PADDING = -100
TRIED = 4  # samples, at most
_TOLERANCE = {"float32": 1e-5, "float64": 1e-6}  # of losses
_GRADIENTS = 1e-4  # of sums over gradients
_TF32 = 5e-3  # of products with 10 bits, which are cuDNN's default
_COARSE = 3e-2  # of 16-bit arithmetic


class Totals:
    """What a loss may be divided by: samples, and tokens as a number or a tensor on the batch's device."""

    def __init__(self, samples: int = 0, tokens: Any = 0, labels: tuple[Any, ...] = ()) -> None:
        """Tokens of ``labels`` are counted once they are asked for: most rules do not."""
        self.samples, self._counted, self._labels = samples, tokens, labels

    @property
    def tokens(self) -> Any:
        """Labels other than -100."""
        for labels in self._labels:
            self._counted = self._counted + (labels != _PADDING).sum()
        self._labels = ()
        return self._counted

    def add(self, other: Totals) -> None:
        """Count ``other`` too."""
        self.samples, self._counted = self.samples + other.samples, self._counted + other._counted
        self._labels += other._labels

    def share(self, rule: str, whole: Totals) -> Any:
        """The weight of this part of ``whole`` by ``rule``; a number or a tensor."""
        if rule == "sum":
            return 1.0
        if rule == "mean":
            return self.samples / whole.samples
        tokens = whole.tokens
        return self.tokens / (tokens.clamp(min=1) if hasattr(tokens, "clamp") else max(1, tokens))


def labels_name(trainer: Any) -> str:
    """The entry of a batch that holds its labels."""
    return str((getattr(trainer, "label_names", None) or ["labels"])[0])


def totals(inputs: Any, labels: str = "labels") -> Totals:
    """Those of one collated batch; without ``labels`` there are no tokens."""
    values = inputs.get(labels)
    return Totals(batch_size(inputs), labels=(values,) if hasattr(values, "shape") else ())


def expected_rules(trainer: Any) -> tuple[str, ...]:
    """The rules, the likeliest first: where several fit the first batch, that decides."""
    kind = loss_kind(trainer)
    if kind != "mean":
        return ("sum", "token_mean", "mean")
    return RULES if ctc_reduction(trainer.model) else ("token_mean", "mean", "sum")


def row_tokens(inputs: Any, labels: str = "labels") -> list[int]:
    """The tokens of each sample of a collated batch; none without labels."""
    values = inputs.get(labels)
    if not hasattr(values, "shape") or not len(values.shape):
        return [0] * batch_size(inputs)
    used = values != _PADDING
    return [int(n) for n in (used.flatten(1).sum(1) if len(used.shape) > 1 else used.int())]


def informative_rows(inputs: Any, most: int = TRIED, labels: str = "labels") -> Any:
    """At most so many samples of a batch, one with the most tokens first, and one with the fewest among them."""
    counts = row_tokens(inputs, labels)
    rows = sorted(range(len(counts)), key=lambda i: -counts[i])
    return copied(pick(inputs, rows if len(rows) <= most else [*rows[: most // 2], *rows[most // 2 - most :]]))


class NotFiniteError(Exception):
    """A loss that is not finite."""


class NoRuleError(InvalidArgumentError):
    """The loss of one sample depends on the others in a way that no weight corrects."""


def fitting_rules(
    trainer: Any,
    inputs: Any,
    measure: Callable[[Any], Any],
    labels: str = "labels",
    split: Any = None,
    least: float = 1e-12,
) -> tuple[str, ...]:
    """The rules by which what ``measure`` gives of parts of ``inputs`` adds up to that of the whole.

    ``measure`` gives the loss of a batch, or sums over its gradient; the likeliest rule comes first. At least two
    samples are needed; ``split`` is the user's function, if there is one. What is off counts in relation to the whole,
    or to ``least`` if that is larger. Raises ``NoRuleError`` when none fits, and
    ``NotFiniteError`` when a loss that counts is not finite.
    """
    count = batch_size(inputs)
    parts = split(copied(inputs), (count + 1) // 2) if split else [piece(inputs, 0, 1), piece(inputs, 1, count)]
    found = measure(copied(inputs))
    wanted, tolerance = found.double(), _tolerance(trainer, found)
    if not bool(wanted.isfinite().all()):
        raise NotFiniteError
    measured = [measure(copied(part)) for part in parts]
    sums = totals(inputs, labels)
    errors = {}
    for rule in expected_rules(trainer):
        weights = [totals(part, labels).share(rule, sums) for part in parts]
        got = sum(weighted(each.double(), torch.as_tensor(w)) for w, each in zip(weights, measured, strict=True))
        errors[rule] = float((got - wanted).norm() / max(float(wanted.norm()), least))
    fitting = tuple(rule for rule, error in errors.items() if error <= tolerance)
    if not fitting and any(error != error for error in errors.values()):
        raise NotFiniteError
    if not fitting:
        told = ", ".join(f"{rule} is {error:.2g} off" for rule, error in errors.items())
        raise NoRuleError(
            f"the loss of {count} samples is made of those of its parts by no known rule ({told})",
            "pass attach(rule=…) with mean, token_mean or sum, if one of them is what the loss does",
        )
    return fitting


def _tolerance(trainer: Any, measured: Any) -> float:
    if trainer.args.fp16 or trainer.args.bf16:
        return _COARSE
    if measured.is_cuda and (torch.backends.cudnn.allow_tf32 or torch.backends.cuda.matmul.allow_tf32):
        return _TF32
    if measured.numel() > 1:
        return _GRADIENTS
    return _TOLERANCE.get(str(measured.dtype).removeprefix("torch."), _COARSE)


def weighted(told: Any, weight: Any) -> Any:
    """The share of a loss in that of the whole; nothing of a part that counts nothing, whose mean may be NaN."""
    if not isinstance(told, torch.Tensor):
        told = torch.tensor(float(told))
    told = told.detach() if told.requires_grad else told
    if not isinstance(weight, torch.Tensor):
        return told if weight == 1.0 else told * weight
    return torch.where(weight == 0, torch.zeros_like(told), told * weight)
