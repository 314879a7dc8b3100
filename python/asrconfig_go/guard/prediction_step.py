"""Prediction steps in pieces, with the results of the whole batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .._base.out_of_memory import classify, clear_frames
from ..batching.collated_batch import copied, like
from .loss_kind import ctc_reduction
from .loss_weights import (
    TRIED,
    NoRuleError,
    NotFiniteError,
    Totals,
    expected_rules,
    fitting_rules,
    informative_rows,
    labels_name,
    row_tokens,
    totals,
    weighted,
)


class EvaluationRule:
    """How losses of parts add up in evaluation, measured on the first batch that is split.

    It need not be the rule of training: ``num_items_in_batch`` is not given here, so that sums become means. The one
    that the user has ``given`` goes where none fits.
    """

    def __init__(self, trainer: Any, given: str | None = None) -> None:
        self._trainer, self._given = trainer, given
        self._rules: tuple[str, ...] = ()

    def of(self, inputs: Any, predict: Callable[[Any], Any], split: Any, fits: int) -> str:
        """The rule for ``inputs``; ``predict`` gives loss, predictions and labels of at most ``fits`` samples.

        Raises ``NoRuleError`` where the loss of a batch is not made of those of its parts, and no rule was given.
        """
        labels = labels_name(self._trainer)

        def loss(part: Any) -> Any:
            found = predict(part)[0]
            if found is None:
                raise NotFiniteError
            return found

        asked = not self._rules or (len(self._rules) > 1 and len(set(row_tokens(inputs, labels))) > 1)
        if asked and inputs.get(labels) is not None:
            for most in (min(TRIED, max(2, fits)), 2):
                some = copied(inputs) if split else informative_rows(inputs, most, labels)
                try:
                    self._rules = fitting_rules(self._trainer, some, loss, labels, split)
                    break
                except NotFiniteError:
                    break
                except NoRuleError:
                    if self._given is None:
                        raise
                    self._rules = (self._given,)
                    break
                except RuntimeError as error:
                    if classify(error)["class"] not in ("gpu_oom", "maybe"):
                        raise
                    clear_frames(error)
        return self._rules[0] if self._rules else self._expected()

    def _expected(self) -> str:
        found = expected_rules(self._trainer)[0]
        return "token_mean" if found == "sum" and ctc_reduction(self._trainer.model) != "sum" else found


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
            share = weighted(found[0], count.share(rule, whole))
            loss = share if loss is None else loss + share
        logits = found[1] if logits is None else nested_concat(logits, found[1], padding_index=-100)
        if isinstance(labels, list):  # one of each sample
            labels = labels + found[2]
        else:
            labels = found[2] if labels is None else nested_concat(labels, found[2], padding_index=-100)
    return loss, logits, labels
