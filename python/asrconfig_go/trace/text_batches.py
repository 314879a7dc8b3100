"""Batches for models of text."""

from __future__ import annotations

import contextlib
from collections.abc import Container
from typing import Any

import torch

from .._base.input_units import TOKENS_PER_SECOND
from .made_up_batches import SpeechBatches, padded_mask

__all__ = ["TEXT", "positions", "text_batches"]

TEXT, _MASK = "input_ids", "attention_mask"


def text_batches(model: Any, parameters: Container[str]) -> SpeechBatches:
    """Tokens without labels, with a mask where ``forward`` takes one, up to the length that positions allow."""
    words = _vocabulary(model)

    def make(batch: int, length: int, labels: int) -> dict[str, torch.Tensor]:
        tokens = torch.randint(words // 2, words, (batch, length))  # clear of the marks, which come first
        mask = {_MASK: padded_mask(batch, length, torch.int64)} if _MASK in parameters else {}
        return {TEXT: tokens, **mask}

    return SpeechBatches(make, TOKENS_PER_SECOND, max_length=positions(model), row_kind="texts")


def positions(model: Any) -> int | None:
    """The most tokens that a text model's positions allow, if it has learnt them."""
    longest = getattr(getattr(model, "config", None), "max_position_embeddings", None)
    if not isinstance(longest, int):
        return None
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None:
            return int(longest - module.padding_idx - 1)  # RoBERTa counts from behind it
    return longest


def _vocabulary(model: Any) -> int:
    """How many tokens a text model knows: by its embedding, or by its config."""
    found = getattr(getattr(model, "config", None), "vocab_size", None)
    with contextlib.suppress(NotImplementedError, AttributeError):
        found = model.get_input_embeddings().num_embeddings
    return int(found or 30)
