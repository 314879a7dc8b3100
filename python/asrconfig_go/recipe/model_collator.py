"""The collator that a model needs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from .._base.keywords import check_keywords
from .model_building import is_whisper

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ..loading.padded_clips import Augmentation


class CollatorSettings(TypedDict, total=False):
    """What ``CTCCollator`` and ``Seq2SeqCollator`` both take."""

    pad_to_multiple_of: int | None
    load: Callable[[Any], Any]
    augment: Sequence[Augmentation]


def make_collator(processor: Any, model: Any, **options: Unpack[CollatorSettings]) -> Any:
    """``Seq2SeqCollator`` for Whisper, else ``CTCCollator``; ``options`` are theirs, as ``load`` and ``augment``.

    >>> processor = build_processor(["one two", "three"], "tiny-wav2vec2")
    >>> collate = make_collator(processor, load_model("tiny-wav2vec2", processor))
    >>> collate([{"audio": CLIPS / "test-000.flac"}])["input_values"].shape
    torch.Size([1, 9390])
    """
    from ..loading import CTCCollator, Seq2SeqCollator

    kind = Seq2SeqCollator if is_whisper(processor) else CTCCollator
    check_keywords(options, [*inspect.signature(kind).parameters][1:], "make_collator")
    if is_whisper(processor):
        return Seq2SeqCollator(processor, decoder_start_token_id=model.config.decoder_start_token_id, **options)
    return CTCCollator(processor, **options)
