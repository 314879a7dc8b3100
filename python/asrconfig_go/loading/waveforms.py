"""The input of models that take samples (wav2vec2, HuBERT, WavLM, MMS, …), normalised in place in the padded batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .padded_clips import Array
from .shared_tensors import new_tensor


def takes_samples(extractor: Any) -> bool:
    """Whether it is transformers' own ``Wav2Vec2FeatureExtractor``, and not something derived from it."""
    kind = type(extractor)
    return kind.__name__ == "Wav2Vec2FeatureExtractor" and kind.__module__.startswith("transformers.")


def wave_batch(clips: Sequence[Array], extractor: Any, multiple: int) -> dict[str, Any]:
    """What that extractor makes of each clip, and its ``pad`` of all, bit for bit, with a third of the work.

    It makes an array for each step of each clip, and copies all of them three times to pad them.
    """
    lengths = list(map(len, clips))
    width = -(-max(lengths) // multiple) * multiple
    spans = [(width - n, width) if extractor.padding_side == "left" else (0, n) for n in lengths]
    batch = new_tensor((len(clips), width), np.float32)
    scratch: Array = np.empty(max(lengths), dtype=np.float32)
    for row, clip, (start, end) in zip(batch.numpy(), clips, spans, strict=True):
        row[:start] = row[end:] = extractor.padding_value
        if extractor.do_normalize:
            _normalise(clip, row[start:end], scratch[: len(clip)])
        else:
            row[start:end] = clip
    mask = {"attention_mask": _mask(spans, width)} if extractor.return_attention_mask else {}
    return {"input_values": batch, **mask}


def _mask(spans: Sequence[tuple[int, int]], width: int) -> Any:
    mask = new_tensor((len(spans), width), np.int32)
    for row, (start, end) in zip(mask.numpy(), spans, strict=True):
        row[:start] = row[end:] = 0
        row[start:end] = 1
    return mask


def _normalise(clip: Array, result: Array, scratch: Array) -> None:
    """(x - mean) / sqrt(variance + 1e-7) in the order in which numpy's ``var`` rounds."""
    np.subtract(clip, clip.mean(), out=result)
    np.multiply(result, result, out=scratch)
    variance = np.float32(np.add.reduce(scratch) / np.intp(len(clip)))
    result /= np.sqrt(variance + 1e-7)
