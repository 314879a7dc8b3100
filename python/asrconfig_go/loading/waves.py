"""The input of models that take samples (wav2vec2, HuBERT, WavLM, MMS, …), normalised in place in the padded batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .batches import Array


def takes_samples(extractor: Any) -> bool:
    """Whether it is transformers' own ``Wav2Vec2FeatureExtractor``, and not something derived from it."""
    return type(extractor).__name__ == "Wav2Vec2FeatureExtractor" and type(extractor).__module__.startswith(
        "transformers."
    )


def wave_batch(clips: Sequence[Array], extractor: Any, multiple: int) -> dict[str, Array]:
    """What that extractor makes of each clip, and its ``pad`` of all, bit for bit, with a third of the work.

    It makes an array for each step of each clip, and copies all of them three times to pad them.
    """
    lengths = list(map(len, clips))
    width = -(-max(lengths) // multiple) * multiple
    batch: Array = np.empty((len(clips), width), dtype=np.float32)
    scratch: Array = np.empty(max(lengths), dtype=np.float32)
    mask: Array = np.zeros((len(clips), width), dtype=np.int32)
    for row, own, clip, length in zip(batch, mask, clips, lengths, strict=True):
        start = width - length if extractor.padding_side == "left" else 0
        row[:start] = row[start + length :] = extractor.padding_value
        own[start : start + length] = 1
        if extractor.do_normalize:
            _normalise(clip, row[start : start + length], scratch[:length])
        else:
            row[start : start + length] = clip
    values = {"input_values": batch}
    return {**values, "attention_mask": mask} if extractor.return_attention_mask else values


def _normalise(clip: Array, result: Array, scratch: Array) -> None:
    """(x - mean) / sqrt(variance + 1e-7) in the order in which numpy's ``var`` rounds."""
    np.subtract(clip, clip.mean(), out=result)
    np.multiply(result, result, out=scratch)
    variance = np.float32(np.add.reduce(scratch) / np.intp(len(clip)))
    result /= np.sqrt(variance + 1e-7)
