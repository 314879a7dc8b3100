"""A small Whisper vocabulary learnt from transcripts: bytes, their most frequent pairs, and Whisper's marks."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

_TOKENS = 512  # of bytes and merged pairs
_MARKS = ("<|endoftext|>", "<|startoftranscript|>", "<|translate|>", "<|transcribe|>", "<|notimestamps|>")
MEL_BINS = 40
SECONDS = 5  # that the tiny model hears at once


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
        tokenizer = _opened(WhisperTokenizer, Path(folder))
    tokenizer.add_tokens([AddedToken(mark, special=True, normalized=False) for mark in _MARKS], special_tokens=True)
    tokenizer.set_prefix_tokens()
    return tokenizer


def _opened(kind: Any, folder: Path) -> Any:
    """The tokenizer of two files, whether it takes their names or what is in them."""
    return kind.from_pretrained(str(folder), pad_token=_MARKS[0])
