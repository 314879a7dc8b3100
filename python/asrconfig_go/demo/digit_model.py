"""The demo's model: a wav2vec2 with CTC head, under a hundredth of the size of wav2vec2-base, with random weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .digits import Collator
from .tiny_models import TINY_WAV2VEC2

if TYPE_CHECKING:
    import datasets
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


def transcribe(model: Wav2Vec2ForCTC, dataset: datasets.Dataset, collator: Collator, batch: int = 20) -> list[str]:
    """Return the greedy transcript of every row, in order, `batch` clips (at least 1) at a time.

    The model is left in evaluation mode.
    """
    import torch

    model.eval()
    rows: list[dict[str, Any]] = list(dataset)
    texts = []
    for start in range(0, len(rows), batch):
        inputs = {name: tensor.to(model.device) for name, tensor in collator(rows[start : start + batch]).items()}
        del inputs["labels"]
        with torch.inference_mode():
            tokens = model(**inputs).logits.argmax(dim=-1)
        # Frames past the end of a clip come from its padding and say nothing.
        frames = model._get_feat_extract_output_lengths(inputs["attention_mask"].sum(dim=-1)).tolist()
        texts += [collator.vocabulary.decode(row[:count]) for row, count in zip(tokens.tolist(), frames, strict=True)]
    return texts
