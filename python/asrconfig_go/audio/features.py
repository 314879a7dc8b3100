"""Makes the batches of a model's input from clips, equal to those of the processor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from .._core.output import listed
from .._core.settings import SAMPLING_RATE
from ..errors import InvalidArgumentError
from .augmentation import Augmentation, augmented
from .clip_cache import Load, sample_rate_of
from .decoding import Array, load_audio

if TYPE_CHECKING:
    import torch
    from transformers import SequenceFeatureExtractor

_PREPARED = ("input_values", "input_features")
_MASK = "attention_mask"


def new_tensor(shape: tuple[int, ...], kind: type | np.dtype[Any]) -> torch.Tensor:
    """An uninitialised tensor of ``shape`` and of a NumPy ``dtype``; in a DataLoader's worker in shared memory.

    Workers pass tensors on in shared memory. A tensor that is elsewhere is copied there first, so that every sample
    would be written twice; torch's ``default_collate`` avoids it in the same way. The memory pages are new each time,
    which takes most of the time of a batch from a cache; reusing them would require to know when the training has
    released a batch.
    """
    import torch

    dtype, count = torch.from_numpy(np.empty(0, kind)).dtype, math.prod(shape)
    if not count or torch.utils.data.get_worker_info() is None:
        return torch.empty(shape, dtype=dtype)
    storage = torch.UntypedStorage._new_shared(count * dtype.itemsize)
    return torch.empty(0, dtype=dtype).set_(storage, 0, shape)


def _is_wav2vec2(extractor: object) -> bool:
    """Whether it is transformers' ``Wav2Vec2FeatureExtractor`` itself, and no class derived from it."""
    kind = type(extractor)
    return kind.__name__ == "Wav2Vec2FeatureExtractor" and kind.__module__.startswith("transformers.")


def _wav2vec2_batch(clips: Sequence[Array], extractor: SequenceFeatureExtractor, multiple: int) -> dict[str, Any]:
    """The batch that a ``Wav2Vec2FeatureExtractor`` makes of clips, bit for bit, with a third of the work.

    The extractor makes an array for each step of each clip, and copies all of them three times to pad them.
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
    mask = {_MASK: _mask(spans, width)} if extractor.return_attention_mask else {}
    return {"input_values": batch, **mask}


def _mask(spans: Sequence[tuple[int, int]], width: int) -> torch.Tensor:
    mask = new_tensor((len(spans), width), np.int32)
    for row, (start, end) in zip(mask.numpy(), spans, strict=True):
        row[:start] = row[end:] = 0
        row[start:end] = 1
    return mask


def _normalise(clip: Array, result: Array, scratch: Array) -> None:
    """(x - mean) / sqrt(variance + 1e-7), in the order of operations of NumPy's ``var``, which decides the rounding."""
    np.subtract(clip, clip.mean(), out=result)
    np.multiply(result, result, out=scratch)
    variance = np.float32(np.add.reduce(scratch) / np.intp(len(clip)))
    result /= np.sqrt(variance + 1e-7)


def model_inputs(
    rows: Sequence[dict[str, Any]],
    extractor: SequenceFeatureExtractor,
    load: Load,
    augment: Sequence[Augmentation],
    multiple: int | None,
) -> dict[str, Any]:
    """The padded tensors that ``extractor`` makes of the rows' audio, or of the input that they hold already.

    Each clip is prepared alone and then padded. So it is normalised over its own samples even where the extractor makes
    no attention mask; clips prepared together would be normalised with their padding. ``augment`` is not applied to
    rows whose ``"augment"`` is false; lengths become a ``multiple``, unless the extractor has a fixed length. Raises
    ``InvalidArgumentError`` for rows without audio, and for augmentations of rows without it.
    """
    name = next((name for name in _PREPARED if rows and name in rows[0]), None)
    multiple = 1 if multiple is None or fixed_length(extractor) else multiple
    if name is not None:
        if augment:
            raise InvalidArgumentError(f"the rows hold {name}, which cannot be augmented", 'pass rows with "audio"')
        return _padded([_stored_input(row, name, extractor) for row in rows], extractor, multiple)
    clips = clips_of(rows, extractor, load, augment)
    if _is_wav2vec2(extractor):
        return _wav2vec2_batch(clips, extractor, multiple)
    return _padded([_prepared(clip, extractor) for clip in clips], extractor, multiple)


def _padded(prepared: Sequence[dict[str, Any]], extractor: SequenceFeatureExtractor, multiple: int) -> dict[str, Any]:
    """The batch that ``extractor.pad`` makes, with one copy of every sample in place of three."""
    batch: dict[str, Any] = {}
    for name in prepared[0]:
        values = [np.asarray(features[name]) for features in prepared]
        length = -(-max(map(len, values)) // multiple) * multiple
        dtype = np.float32 if values[0].dtype == np.float64 else values[0].dtype
        batch[name] = new_tensor((len(values), length, *values[0].shape[1:]), dtype)
        fill = 0 if name == _MASK else extractor.padding_value
        for row, value in zip(batch[name].numpy(), values, strict=True):
            start = length - len(value) if extractor.padding_side == "left" else 0
            row[:start] = row[start + len(value) :] = fill
            row[start : start + len(value)] = value
    return batch


def fixed_length(extractor: object) -> bool:
    """Whether every clip is padded to the same number of frames, as for Whisper."""
    return hasattr(extractor, "nb_max_frames")


def clips_of(
    rows: Sequence[dict[str, Any]], extractor: SequenceFeatureExtractor, load: Load, augment: Sequence[Augmentation]
) -> list[Array]:
    """The audio of the rows, augmented except in rows whose ``"augment"`` is false."""
    if not rows:
        raise InvalidArgumentError("a batch of no rows", "check the dataset and the sampler")
    if "audio" not in rows[0]:
        raise InvalidArgumentError(
            f"rows of {listed(sorted(rows[0])) or 'nothing'} have no audio",
            'rows need "audio" (or input_values, input_features); with a Trainer set remove_unused_columns=False',
        )
    rate = int(getattr(extractor, "sampling_rate", SAMPLING_RATE))
    if load is load_audio:
        load = partial(load_audio, sample_rate=rate)
    elif sample_rate_of(load) not in (None, rate):
        raise InvalidArgumentError(
            f"the clips are loaded at {sample_rate_of(load)} Hz, and {type(extractor).__name__} takes {rate} Hz",
            f"make the cache with sample_rate={rate}, or load=partial(load_audio, sample_rate={rate})",
        )
    clips = [load(row["audio"]) for row in rows]
    places = [i for i, row in enumerate(rows) if row.get("augment", True)] if augment else []
    if places:
        for i, clip in zip(places, augmented([clips[i] for i in places], augment, _generator()), strict=True):
            clips[i] = clip
    return clips


def _generator() -> np.random.Generator:
    """A generator seeded by torch's, which differs between workers and epochs and follows from the run's seed."""
    import torch

    return np.random.default_rng(int(torch.randint(2**63 - 1, (1,))))


def _prepared(clip: Array, extractor: SequenceFeatureExtractor) -> dict[str, Any]:
    mask = bool(getattr(extractor, "return_attention_mask", False))  # else Whisper's extractor ignores its own setting
    features = extractor(clip, sampling_rate=int(extractor.sampling_rate), return_attention_mask=mask)
    return {name: values[0] for name, values in features.items()}


def _stored_input(row: dict[str, Any], name: str, extractor: SequenceFeatureExtractor) -> dict[str, Any]:
    inputs = {name: np.asarray(row[name], dtype=np.float32)}
    if getattr(extractor, "return_attention_mask", False) and not fixed_length(extractor):
        inputs[_MASK] = np.asarray(row.get(_MASK, np.ones(len(inputs[name]))), dtype=np.int32)
    return inputs
