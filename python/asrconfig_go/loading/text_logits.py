"""Logits where labels count alone: batches of audio language models without the logits of prompt and audio."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .._base.errors import UnsupportedError
from .._base.wrapped_model import bare

ARGUMENT = "logits_to_keep"  # of forward, in transformers
_IGNORED = -100


@dataclass(frozen=True)
class TextLogitsCollator:
    """The batches of another collator, whose model computes logits from the first label that counts on: see
    ``text_logits_only``."""

    collator: Callable[[Any], Any]

    def __call__(self, rows: Any) -> Any:
        """A batch as ``collator`` makes it, with the columns of ``labels`` that count and ``logits_to_keep``."""
        return cut_labels(self.collator(rows))


def text_logits_only(collator: Callable[[Any], Any], model: Any) -> TextLogitsCollator:
    """Wrap a collator so that an audio language model computes logits for its text alone; the loss stays the same.

    A model's logits are as wide as its vocabulary, and take several copies of that in fp32 in the loss. Of a sequence
    of prompt, audio and text, the labels of the first two are -100, and so their logits are wasted: the wrapped
    collator cuts these labels off, and passes ``logits_to_keep``. Give the result to the plan and to the Trainer.

    Args:
        collator: Makes batches with ``labels`` as wide as ``input_ids``, -100 where no label counts.
        model: The model that is trained, also in PEFT's wrapper.

    Returns:
        A collator; it can be pickled where ``collator`` can.

    Raises:
        UnsupportedError: The model's ``forward`` takes no ``logits_to_keep``.

    Example:
        >>> import torch
        >>> class Decoder(torch.nn.Module):
        ...     def forward(self, input_ids, labels, logits_to_keep=0): ...
        >>> batch = {"input_ids": torch.tensor([[5, 6, 7, 8]]), "labels": torch.tensor([[-100, -100, -100, 8]])}
        >>> text_logits_only(lambda rows: batch, Decoder())([])["logits_to_keep"]
        2
    """
    if not keeps_logits(model):
        raise UnsupportedError(
            f"forward of {type(bare(model)).__name__} takes no {ARGUMENT}: its logits are computed for every token",
            "leave the collator as it is, or upgrade transformers",
        )
    return TextLogitsCollator(collator)


def keeps_logits(model: Any) -> bool:
    """Whether a model's forward computes logits for the last tokens alone, if it is asked to."""
    forward = getattr(bare(model), "forward", None)
    return callable(forward) and ARGUMENT in inspect.signature(forward).parameters


def cut_labels(batch: Any) -> Any:
    """A batch without the labels before the first that counts, and with ``logits_to_keep``; others as they are.

    Logits predict the next token, so that those of the token before count, too.
    """
    labels = batch.get("labels") if isinstance(batch, Mapping) else None
    if labels is None or ARGUMENT in batch or labels.dim() != 2:
        return batch
    counted = (labels != _IGNORED).any(0).nonzero()
    first = int(counted[0]) if len(counted) else 0
    if first < 2:  # nothing to save
        return batch
    count = labels.shape[1] - first + 1
    return {**batch, "labels": labels[:, -count:], ARGUMENT: count}
