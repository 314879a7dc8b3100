"""Published models without weights, and batches for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

RATE = 16_000
HOP = 160
_PROMPT = 20  # tokens of a chat template around the audio
_LETTER = 5  # any token of text


def without_weights(build: Callable[[], Any], dtype: torch.dtype = torch.float32) -> Any:
    """What ``build`` makes, with parameters on the meta device: a model of any size takes no memory here."""
    from accelerate import init_empty_weights

    with init_empty_weights(include_buffers=False):
        model = build().to(dtype)
    model.tie_weights()
    return model


def with_adapters(model: Any, **settings: Any) -> Any:
    """The model wrapped by PEFT, its adapters without weights, too."""
    from accelerate import init_empty_weights
    from peft import LoraConfig, get_peft_model

    with init_empty_weights(include_buffers=False):
        return get_peft_model(model, LoraConfig(**settings))


def waveforms(clips: int, samples: int, labels: int) -> dict[str, Any]:
    """What wav2vec2's collators make, the first clip the longest."""
    return {"input_values": torch.zeros(clips, samples), "labels": torch.ones(clips, labels, dtype=torch.long)}


def features(clips: int, samples: int, bins: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Frames of 10 ms, [clips, frames, bins], and their mask."""
    frames = samples // HOP + 1
    return torch.zeros(clips, frames, bins), torch.ones(clips, frames, dtype=torch.long)


def sequences(clips: int, placeholder: int, placeholders: int, text: int) -> dict[str, torch.Tensor]:
    """Prompt, placeholders for the audio's embeddings and text; the loss counts the text alone."""
    before = _PROMPT + placeholders
    ids = torch.full((clips, before + text), _LETTER)
    ids[:, _PROMPT // 2 : _PROMPT // 2 + placeholders] = placeholder
    labels = ids.clone()
    labels[:, :before] = -100
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}
