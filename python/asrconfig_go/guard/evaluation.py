"""Prediction steps in pieces, with the results of the whole batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..loss_kind import ctc_reduction
from .split import like
from .weights import Totals, expected_rules, labels_name, totals


def evaluation_rule(trainer: Any, rule: str | None) -> str:
    """How losses of parts add up in evaluation, where ``num_items_in_batch`` counts the tokens of each part alone."""
    found = rule or expected_rules(trainer)[0]
    return "token_mean" if found == "sum" and ctc_reduction(trainer.model) != "sum" else found


def predict_in_parts(trainer: Any, predict: Any, parts: Sequence[Any], rule: str) -> tuple[Any, Any, Any]:
    """Loss, predictions and labels of a batch from those of its ``parts``; ``predict`` gives them of one.

    Predictions of unequal length, as generation makes them, are padded with -100, as the Trainer does between batches.
    """
    from transformers.trainer_pt_utils import nested_concat

    counts = [totals(part, labels_name(trainer)) for part in parts]
    whole = Totals()
    for count in counts:
        whole.add(count)
    loss = logits = labels = None
    for part, count in zip(parts, counts, strict=True):
        found = predict(like(part, dict(part)))
        if found[0] is not None:
            share = found[0] * count.share(rule, whole)
            loss = share if loss is None else loss + share
        logits = found[1] if logits is None else nested_concat(logits, found[1], padding_index=-100)
        labels = found[2] if labels is None else nested_concat(labels, found[2], padding_index=-100)
    return loss, logits, labels
