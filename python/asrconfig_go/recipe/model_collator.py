"""The collator that a model needs."""

from __future__ import annotations

from typing import Any

from .model_building import is_whisper


def make_collator(processor: Any, model: Any, **options: Any) -> Any:
    """``Seq2SeqCollator`` for Whisper, else ``CTCCollator``; ``options`` are theirs, as ``load`` and ``augment``."""
    from ..loading import CTCCollator, Seq2SeqCollator

    if is_whisper(processor):
        return Seq2SeqCollator(processor, decoder_start_token_id=model.config.decoder_start_token_id, **options)
    return CTCCollator(processor, **options)
