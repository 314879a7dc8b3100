"""A small Whisper vocabulary learnt from transcripts: bytes, their most frequent pairs, and Whisper's tokens."""

from __future__ import annotations

import tempfile
from typing import Any

from ..demo.tiny_models import MEL_BINS

_TOKENS = 512  # of bytes and merged pairs
_MARKS = ("<|endoftext|>", "<|startoftranscript|>", "<|translate|>", "<|transcribe|>", "<|notimestamps|>")
SECONDS = 5  # of input of the tiny model


def tiny_whisper_processor(texts: list[str]) -> Any:
    """A ``WhisperProcessor`` for clips of up to ``SECONDS``, without languages and timestamps."""
    from transformers import WhisperFeatureExtractor, WhisperProcessor

    extractor = WhisperFeatureExtractor(feature_size=MEL_BINS, chunk_length=SECONDS)
    return WhisperProcessor(feature_extractor=extractor, tokenizer=_tokenizer(texts))


def _tokenizer(texts: list[str]) -> Any:
    from tokenizers import ByteLevelBPETokenizer
    from transformers import AddedToken, WhisperTokenizer

    learnt = ByteLevelBPETokenizer()
    learnt.train_from_iterator(texts, vocab_size=_TOKENS, min_frequency=2, show_progress=False)
    with tempfile.TemporaryDirectory() as folder:
        learnt.save_model(folder)
        tokenizer = WhisperTokenizer.from_pretrained(folder, pad_token=_MARKS[0])
    tokenizer.add_tokens([AddedToken(mark, special=True, normalized=False) for mark in _MARKS], special_tokens=True)
    tokenizer.set_prefix_tokens()
    return tokenizer
