"""Hugging Face datasets whose ``Audio`` is not decoded by them: from version 4 on they need torchcodec and FFmpeg."""

from __future__ import annotations

import io
import logging
import wave
from functools import cache
from typing import TYPE_CHECKING, Any

from ..data.source import open_source

if TYPE_CHECKING:
    from transformers import Trainer

logger: logging.Logger = logging.getLogger("asrconfig_go")


@cache
def cannot_decode() -> str:
    """The reason why ``datasets`` cannot decode audio here, or "": it tries with a clip of a few samples."""
    file = io.BytesIO()
    with wave.open(file, "wb") as clip:
        clip.setnchannels(1)
        clip.setsampwidth(2)
        clip.setframerate(16_000)
        clip.writeframes(bytes(320))
    try:
        from datasets import Audio

        from .audio import load_audio

        load_audio(Audio().decode_example({"bytes": file.getvalue(), "path": None}))
    except Exception as error:  # torchcodec raises RuntimeError without FFmpeg, OSError for another torch, and others
        return str(error).strip().partition("\n")[0].removesuffix(" Likely causes:") or type(error).__name__
    return ""


def readable(dataset: Any, collator: object) -> Any:
    """``dataset`` undecoded where ``datasets`` cannot decode it and ``collator``, one of this package, can."""
    from .collators import CTCCollator, Seq2SeqCollator

    source = open_source(dataset)
    decoded = any(part.decoded_columns() for part in source.parts.values())
    if not isinstance(collator, CTCCollator | Seq2SeqCollator) or not decoded or not cannot_decode():
        return dataset
    logger.warning("datasets cannot decode audio here (%s): soundfile does", cannot_decode())
    return source.undecoded()


def make_readable(trainer: Trainer) -> None:
    """Apply ``readable`` to the datasets of a Trainer."""
    collator = getattr(trainer, "data_collator", None)
    for name in ("train_dataset", "eval_dataset"):
        if getattr(trainer, name, None) is not None:
            setattr(trainer, name, readable(getattr(trainer, name), collator))
