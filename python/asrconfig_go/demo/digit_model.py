"""The demo's model: a wav2vec2 with CTC head, under a hundredth of the size of wav2vec2-base, with random weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .tiny_models import TINY_WAV2VEC2

if TYPE_CHECKING:
    from transformers import Wav2Vec2Config, Wav2Vec2ForCTC


def small_config(tokens: int) -> Wav2Vec2Config:
    """Return the architecture: four strided convolutions (one frame each 20 ms), then three transformer layers."""
    from transformers import Wav2Vec2Config

    return Wav2Vec2Config(**TINY_WAV2VEC2 | {"vocab_size": tokens})


def small_model(tokens: int, seed: int) -> Wav2Vec2ForCTC:
    """Return the model with random weights that depend on `seed` alone; torch's own random state is left as it was."""
    import torch
    from transformers import Wav2Vec2ForCTC

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Wav2Vec2ForCTC(small_config(tokens))
