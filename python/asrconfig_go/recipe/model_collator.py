"""The collator that a model needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..loading.processor_batches import CollatorSettings, collator_of

if TYPE_CHECKING:
    from typing_extensions import Unpack


def make_collator(processor: Any, model: Any, **options: Unpack[CollatorSettings]) -> Any:
    """The collator of rows with ``audio`` and ``text``, or ``labels``; ``options`` are its own, as ``load``.

    ``CTCCollator`` for CTC, ``Seq2SeqCollator`` for Whisper and its like; else
    ``ProcessorCollator``, which has the processor itself make batches: for transducers, for audio LLMs and for decoders
    with a prompt. ``language`` and ``prompt`` are what those ask for.

    >>> processor = build_processor(["one two", "three"], "tiny-wav2vec2")
    >>> collate = make_collator(processor, load_model("tiny-wav2vec2", processor))
    >>> collate([{"audio": CLIPS / "test-000.mp3"}])["input_values"].shape
    torch.Size([1, 9390])
    """
    return collator_of(processor, model, **options)
