"""Batches of the shapes that a collator makes for a model of speech or text."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from .._core.batches import TOKENS_PER_SECOND
from .._core.declared import RowKind
from .._core.random_state import cpu_generators_kept, seed_cpu
from .._core.settings import SAMPLING_RATE
from ..errors import InvalidArgumentError
from ._arena import SMALL
from .input_lengths import FACTS, InputLengths

if TYPE_CHECKING:
    from torch import nn
    from transformers import PretrainedConfig


TEXT = "input_ids"

_TOKENS_PER_SECOND = 4
# Durations to trace: their lengths have no common factor, and repeated halving, as by convolutions of stride 2, rounds
# down in some and not in others, so that no length can be mistaken for twice the next.
_SECONDS = (2.0300625, 3.1993125, 4.5839375, 2.7285625)
# Transcripts to trace, short and long ones alternating: a decoder's attention rounds their length up to 128.
_CHARACTERS = (11, 17, 7, 23, 13, 19, 5)
_TOKENS = (11, 140, 29, 290, 13, 187, 47)
# Fields of configs with the width of a feature frame, and the frames of a second.
_FEATURE_WIDTHS = {"feature_projection_input_dim": 50, "num_mel_bins": 100, "input_feat_per_channel": 100}

Point = tuple[int, int, int]  # batch, length, labels
BatchFunction = Callable[[int, int, int], dict[str, torch.Tensor]]
LossFunction = Callable[[Any], torch.Tensor]  # of a model's outputs


@dataclass(frozen=True)
class SpeechBatches(InputLengths):
    """Makes batches for a model, and converts durations to its input lengths.

    Lengths are in units of the model's input: samples, frames of features, or tokens of text.

    Attributes:
        batch: A function of ``(batch, length, labels)`` that returns the model's keyword arguments as tensors.
        length_per_second: The units of input length in a second of audio.
        fixed_length: The length to which every clip is padded; None where batches are padded to their longest clip.
        max_length: The longest input that the model's positions allow; None for any.
        max_labels: The most label tokens that the model's positions allow; None for any.
        labels_per_second: The usual number of label tokens of a second of audio.
        truncates: Whether an input that is longer than the model takes is cut, and nothing else with it.
        row_kind: ``"clips"`` or ``"texts"``.
        by_length: Whether the lengths of a training's batches are known, by the name of the input.
    """

    batch: BatchFunction
    length_per_second: float
    fixed_length: int | None = None
    max_length: int | None = None
    max_labels: int | None = None
    labels_per_second: float = InputLengths.labels_per_second
    truncates: bool = False
    row_kind: RowKind = "clips"
    by_length: bool = True

    def facts(self) -> dict[str, float | int | str | None]:
        """Return the fields that a trace stores, so that it can convert durations to lengths without the model.

        Returns:
            The fields by name.
        """
        return {name: getattr(self, name) for name in FACTS}

    def __call__(self, batch: int, length: int, labels: int) -> dict[str, torch.Tensor]:
        """Return one batch, as ``batch`` does."""
        return self.batch(batch, length, labels)

    def real(self, point: Point) -> Point:
        """Return the shape of the batch that is made for a point.

        Args:
            point: Batch, input length and label length.

        Returns:
            The point itself; of a dataset's rows, the nearest shape that exists.
        """
        return point

    def pairs(self) -> list[tuple[int, int]]:
        """Return the lengths of a dataset's rows.

        Returns:
            Input length and label length of each row; empty where batches are made up.
        """
        return []

    def points(self) -> list[Point]:
        """Return shapes whose traces let every other shape be computed.

        Returns:
            Batch, input length and label length of each. The lengths have no common factors, and batches of one are
            apart.
        """
        labels = self._labels_to_trace()
        if self.fixed_length is not None:
            return [(batch, self.fixed_length, n) for batch, n in zip((2, 3, 5, 1, 1, 1), labels, strict=False)]
        first, second, third, fourth = self._lengths_to_trace()
        lengths = (first, second, third, fourth, first, third, second)
        return list(zip((2, 3, 5, 4, 1, 1, 1), lengths, labels, strict=True))

    def _labels_to_trace(self) -> list[int]:
        usual = _TOKENS if self.labels_per_second == _TOKENS_PER_SECOND else _CHARACTERS
        if self.max_labels is None or self.max_labels >= max(usual):
            return list(usual)
        return [max(1, n * self.max_labels // max(usual)) for n in usual]

    def _lengths_to_trace(self) -> list[int]:
        """Odd lengths, scaled down for a model that takes less than the longest of them."""
        longest = max(_SECONDS) * self.length_per_second
        limit = longest if self.max_length is None else self.max_length - 1
        return [self.length(s * min(1.0, limit / longest)) | 1 for s in _SECONDS]


@dataclass(frozen=True)
class MadeUp:
    """One kind of batch for a module. ``words`` are the assumptions, "" for none; ``loss`` None: the model's own."""

    batches: SpeechBatches
    words: str = ""
    loss: LossFunction | None = None


def speech_batches(model: nn.Module | PretrainedConfig) -> SpeechBatches:
    """Make batches for a transformers speech model.

    Args:
        model: The model, or its config.

    Returns:
        The batches; their ``batch`` makes one of a shape.

    Raises:
        InvalidArgumentError: The model's input is not known: pass your own ``batch_fn`` there.

    Example:
        >>> from asrconfig_go.recipe.model_building import small_model
        >>> batches = speech_batches(small_model(tokens=12, seed=0).config)
        >>> {name: tuple(tensor.shape) for name, tensor in batches.batch(2, 16_000, 5).items()}
        {'input_values': (2, 16000), 'labels': (2, 5), 'attention_mask': (2, 16000)}
    """
    config = getattr(model, "config", model)
    kind = getattr(config, "model_type", "")
    if kind == "speech-encoder-decoder":
        inside = speech_batches(config.encoder)

        def make(batch: int, length: int, labels: int) -> dict[str, torch.Tensor]:
            return {**inside.batch(batch, length, labels), "labels": _labels(config.decoder, batch, labels)}

        return SpeechBatches(make, inside.length_per_second, labels_per_second=_TOKENS_PER_SECOND)
    if kind == "audio-spectrogram-transformer":
        spectrograms = _features(config, config.num_mel_bins, "input_values")
        return SpeechBatches(spectrograms, 100, fixed_length=config.max_length, truncates=True)
    if hasattr(config, "num_mel_bins") and hasattr(config, "max_source_positions"):
        return _mel_batches(config)
    if hasattr(config, "conv_kernel") and hasattr(config, "conv_stride"):
        return SpeechBatches(_waveforms(config), SAMPLING_RATE)
    if kind.startswith("moonshine"):
        return SpeechBatches(_waveforms(config), SAMPLING_RATE, labels_per_second=_TOKENS_PER_SECOND)
    for name, per_second in _FEATURE_WIDTHS.items():
        width = getattr(config, name, None) or getattr(getattr(config, "encoder_config", None), name, None)
        if width is not None:
            return SpeechBatches(_features(config, width), per_second)
    raise InvalidArgumentError(
        f"the input of {kind or type(model).__name__} is not known",
        "pass batch_fn(batch, length, labels) -> the model's keyword arguments as tensors",
    )


def known_batches(model: object) -> SpeechBatches | None:
    """``speech_batches``; None for any other model."""
    try:
        return speech_batches(model)
    except InvalidArgumentError:
        return None


def _labels(config: PretrainedConfig, batch: int, labels: int) -> torch.Tensor:
    vocabulary = getattr(config, "vocab_size", 32) or 32
    return torch.randint(3, max(4, min(vocabulary, 30)), (batch, labels))


def padded_mask(batch: int, length: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
    """All clips but the first are a little shorter than the batch, as in any real batch of two or more."""
    mask = torch.ones(batch, length, dtype=dtype)
    mask[1:, length - length // 16 :] = 0
    return mask


def _waveforms(config: PretrainedConfig) -> BatchFunction:
    # Models whose features are normalized over time are trained without an attention mask (Wav2Vec2FeatureExtractor).
    masked = getattr(config, "feat_extract_norm", "layer") == "layer"
    encoder = getattr(config, "encoder_config", None)
    frame = round(getattr(encoder, "sample_rate", 0) * getattr(encoder, "frame_ms", 0) / 1000) or 1

    def make(batch: int, length: int, labels: int) -> dict[str, torch.Tensor]:
        length = -(-length // frame) * frame
        made = {"input_values": torch.randn(batch, length), "labels": _labels(config, batch, labels)}
        return {**made, "attention_mask": padded_mask(batch, length)} if masked else made

    return make


def _features(config: PretrainedConfig, width: int, name: str = "input_features") -> BatchFunction:
    def make(batch: int, length: int, labels: int) -> dict[str, torch.Tensor]:
        made = {name: torch.randn(batch, length, width), "labels": _labels(config, batch, labels)}
        return {**made, "attention_mask": padded_mask(batch, length)} if name == "input_features" else made

    return make


def _mel_batches(config: PretrainedConfig) -> SpeechBatches:
    """Whisper: mel spectrograms, (batch, bins, frames), always thirty seconds long."""
    frames = 2 * config.max_source_positions

    def make(batch: int, length: int, labels: int) -> dict[str, torch.Tensor]:
        features = torch.randn(batch, config.num_mel_bins, length)
        return {"input_features": features, "labels": _labels(config, batch, labels)}

    positions = getattr(config, "max_target_positions", None)
    return SpeechBatches(make, 100, fixed_length=frames, max_labels=positions, labels_per_second=_TOKENS_PER_SECOND)


def text_batches(model: nn.Module, parameters: Container[str]) -> SpeechBatches:
    """Tokens without labels, with a mask where ``forward`` takes one, up to the length that positions allow."""
    vocabulary = getattr(getattr(model, "config", None), "vocab_size", None)
    with contextlib.suppress(NotImplementedError, AttributeError):
        vocabulary = model.get_input_embeddings().num_embeddings
    vocabulary = int(vocabulary or 30)

    def make(batch: int, length: int, labels: int) -> dict[str, torch.Tensor]:
        tokens = torch.randint(vocabulary // 2, vocabulary, (batch, length))  # no special tokens, which come first
        mask = {"attention_mask": padded_mask(batch, length, torch.int64)} if "attention_mask" in parameters else {}
        return {TEXT: tokens, **mask}

    return SpeechBatches(make, TOKENS_PER_SECOND, max_length=positions(model), row_kind="texts")


def positions(model: nn.Module) -> int | None:
    """The number of tokens that a text model's learned positions allow, None without them."""
    longest = getattr(getattr(model, "config", None), "max_position_embeddings", None)
    if not isinstance(longest, int):
        return None
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None:
            return int(longest - module.padding_idx - 1)  # RoBERTa counts positions from behind the padding's
    return longest


def batch_identity(batch_fn: BatchFunction, points: Sequence[Point]) -> str:
    """A text that changes with the batches at ``points``: their shapes, and the values that the recorder keeps.

    Random numbers have the same seed each time, and the generators are restored.
    """
    digest = hashlib.sha256()
    with cpu_generators_kept():
        seed_cpu(0)
        for point in points:
            leaves, structure = pytree.tree_flatten(batch_fn(*point))
            digest.update(repr((point, structure, [_leaf(leaf) for leaf in leaves])).encode())
    return digest.hexdigest()


def _leaf(value: object) -> object:
    if not isinstance(value, torch.Tensor):
        return repr(value)
    shape = (tuple(value.shape), tuple(value.stride()), str(value.dtype))
    if (value.is_floating_point() or value.is_complex()) and value.numel() > SMALL:
        return shape
    return shape, hashlib.sha256(value.contiguous().numpy().tobytes()).hexdigest()
