"""Collators for speech models of transformers. Plain data, so that DataLoader workers can pickle them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .._base.checks import checked
from .._base.errors import InvalidArgumentError
from .audio import load_audio
from .features import model_inputs
from .padded_clips import Augmentation
from .padded_labels import labels_of, padded_labels, without_start
from .prompts import own_multiple


@dataclass(frozen=True)
class CTCCollator:
    """Rows to a batch of a CTC model: ``input_values`` or ``input_features``, the mask where the extractor gives one.

    A row has ``audio`` (whatever ``load`` takes) or the model's input, and ``labels`` (ids) or ``text``; rows without
    either give a batch without labels. Inputs are padded to the longest, and to a multiple of ``pad_to_multiple_of``
    samples (or frames); labels with -100. The values are what the processor gives for each clip, padded by its own
    ``pad``.

    ``augment`` changes the audio, one after the other, but not of rows whose ``augment`` is false: a Trainer evaluates
    with the same collator, so add that column to the data to evaluate on. Its draws follow torch's generator: the same
    seed and number of workers give the same batches.

    Raises ``InvalidArgumentError`` for rows without audio and for a ``load`` of another sampling rate than the model's,
    and what ``load`` raises.
    """

    processor: Any
    pad_to_multiple_of: int | None = None
    load: Callable[[Any], Any] = load_audio
    augment: Sequence[Augmentation] = ()

    def __post_init__(self) -> None:
        _check_multiple(self.pad_to_multiple_of)

    def __call__(self, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """A dictionary of tensors."""
        batch, labels = _inputs_and_labels(self, rows)
        return batch if labels is None else {**batch, "labels": padded_labels(labels)}


@dataclass(frozen=True)
class Seq2SeqCollator:
    """Rows to a batch of an encoder and a decoder, such as Whisper: its input and ``labels``.

    As ``CTCCollator``, but labels lose ``decoder_start_token_id`` where the tokenizer put it in front, since the model
    does so itself, and those of a ``text`` end with the tokenizer's end token; ``pad_to_multiple_of`` is of the labels
    too, and not of inputs that always have the same length, as Whisper's 30 s.
    """

    processor: Any
    decoder_start_token_id: int
    pad_to_multiple_of: int | None = None
    load: Callable[[Any], Any] = load_audio
    augment: Sequence[Augmentation] = ()

    def __post_init__(self) -> None:
        checked("decoder_start_token_id", self.decoder_start_token_id, int)
        _check_multiple(self.pad_to_multiple_of)

    def __call__(self, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """A dictionary of tensors."""
        batch, labels = _inputs_and_labels(self, rows, ended=True)
        if labels is None:
            return batch
        labels = without_start(labels, self.decoder_start_token_id)
        return {**batch, "labels": padded_labels(labels, self.pad_to_multiple_of)}


def _inputs_and_labels(
    collator: CTCCollator | Seq2SeqCollator, rows: Sequence[dict[str, Any]], *, ended: bool = False
) -> tuple[dict[str, Any], list[list[int]] | None]:
    processor = collator.processor
    extractor = getattr(processor, "feature_extractor", processor)
    if not hasattr(extractor, "sampling_rate") or not hasattr(extractor, "pad"):
        raise InvalidArgumentError(
            f"{type(processor).__name__} has no feature extractor for audio",
            "pass the model's processor, such as AutoProcessor.from_pretrained(…)",
        )
    multiple = collator.pad_to_multiple_of or own_multiple(processor)
    batch = model_inputs(rows, extractor, collator.load, collator.augment, multiple)
    return batch, labels_of(rows, getattr(processor, "tokenizer", None), ended=ended)


def _check_multiple(multiple: int | None) -> None:
    if multiple is not None and checked("pad_to_multiple_of", multiple, int) < 1:
        raise InvalidArgumentError(f"pad_to_multiple_of = {multiple} is less than one", "8, or None for no multiple")
