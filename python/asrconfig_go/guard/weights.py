"""What each micro-batch counts in its optimizer step, so that the step does not depend on how its samples are cut.

An optimizer step follows the gradient of one loss over all its samples. With the loss of a micro-batch i of n_i samples
and t_i tokens (labels other than -100), and N and T those of the whole step, it is the sum of

- ``mean``: n_i / N · loss_i, where the loss is a mean over samples: CTC with ``ctc_loss_reduction="mean"``;
- ``token_mean``: t_i / T · loss_i, where it is a mean over tokens: Whisper, cross entropy, a label smoother;
- ``sum``: loss_i, where it is a sum, or is divided by ``num_items_in_batch``, which speaks of the whole step already.

Which one holds is not believed from names: it is tried on the first batch, in evaluation mode, without gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .._errors import InvalidArgumentError
from ..loss_kind import ctc_reduction, loss_kind
from .split import batch_size, piece

RULES = ("mean", "token_mean", "sum")
TRIED = 4  # samples, at most
_TOLERANCE = {"float32": 1e-4, "float64": 1e-6}
_COARSE = 3e-2  # of 16-bit arithmetic


@dataclass
class Totals:
    """What a loss may be divided by: samples, and tokens as a number or a tensor on the batch's device."""

    samples: int = 0
    tokens: Any = 0

    def add(self, other: Totals) -> None:
        """Count ``other`` too."""
        self.samples, self.tokens = self.samples + other.samples, self.tokens + other.tokens

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
    tokens = (values != -100).sum() if hasattr(values, "shape") else 0
    return Totals(batch_size(inputs), tokens)


def expected_rules(trainer: Any) -> tuple[str, ...]:
    """The rules, the likeliest first: where several fit the first batch, that decides."""
    kind = loss_kind(trainer)
    if kind != "mean":
        return ("sum", "token_mean", "mean")
    return RULES if ctc_reduction(trainer.model) else ("token_mean", "mean", "sum")


def find_rule(trainer: Any, inputs: Any, loss: Callable[[Any], Any], labels: str = "labels") -> str:
    """The rule by which the losses of unequal parts of ``inputs`` add up to that of the whole.

    ``loss`` computes that of a batch. At least two samples are needed. Raises ``InvalidArgumentError`` when none fits:
    the loss of one sample depends on the others in a way that no weight mends.
    """
    whole = piece(inputs, 0, min(TRIED, batch_size(inputs)))
    count = batch_size(whole)
    parts = [piece(whole, 0, 1), piece(whole, 1, count)]
    wanted = loss(whole)
    losses = [loss(part) for part in parts]
    sums = totals(whole, labels)
    tolerance = _TOLERANCE.get(str(wanted.dtype).removeprefix("torch."), _COARSE)
    if trainer.args.fp16 or trainer.args.bf16:
        tolerance = _COARSE
    errors = {}
    for rule in expected_rules(trainer):
        weights = [totals(part, labels).share(rule, sums) for part in parts]
        got = sum(float(w) * float(part) for w, part in zip(weights, losses, strict=True))
        errors[rule] = abs(got - float(wanted)) / max(abs(float(wanted)), 1e-12)
        if errors[rule] <= tolerance:
            return rule
    told = ", ".join(f"{rule} is {error:.2g} off" for rule, error in errors.items())
    raise InvalidArgumentError(
        f"the loss of {count} samples is made of those of its parts by no known rule ({told})",
        "pass attach(rule=…) with mean, token_mean or sum, if one of them is what the loss does",
    )
