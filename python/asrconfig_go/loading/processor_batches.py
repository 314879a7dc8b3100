"""The collator that a processor and a model need; for most of them the processor's own call makes the batch."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

from .._base.errors import InvalidArgumentError, UnsupportedError
from .._base.keywords import check_keywords
from .._base.speech_kinds import ends_with_frames, speech_kind
from .._base.wrapped_model import bare
from .audio import load_audio
from .collators import CTCCollator, Seq2SeqCollator
from .features import clips_of
from .padded_clips import Augmentation
from .prompted_batches import with_transcripts
from .prompts import check_prompts, extractor_of, prompted, rate_of, writes_prompts

if TYPE_CHECKING:
    from typing_extensions import Unpack


class CollatorSettings(TypedDict, total=False):
    """What every collator of a processor takes; ``pad_to_multiple_of`` only those that pad by themselves."""

    pad_to_multiple_of: int | None
    load: Callable[[Any], Any]
    augment: Sequence[Augmentation]
    language: str | None
    prompt: str | None


@dataclass(frozen=True)
class ProcessorCollator:
    """Rows to a batch by the processor's own call, for models whose input is more than audio: see ``collator_of``.

    A row has ``audio`` (whatever ``load`` takes) and ``text``; rows without ``text`` become the input of ``generate``.
    Transducers and CTC models get the labels that the processor makes of the texts. For others the processor writes the
    prompt: as a transcription request in ``language`` where it knows those, else by its chat template with ``prompt``.
    The transcript and the token ``end`` follow; labels are -100 over the prompt, the audio in it and the padding.
    Entries that the model does not take (``takes``) are left out. ``augment`` is as for ``CTCCollator``.

    Raises ``InvalidArgumentError`` for rows without audio, ``UnsupportedError`` where the processor lacks a package or
    writes no prompt, and what ``load`` and the processor raise.
    """

    processor: Any
    takes: frozenset[str]
    end: int | None = None
    load: Callable[[Any], Any] = load_audio
    augment: Sequence[Augmentation] = ()
    language: str | None = None
    prompt: str | None = None

    def __call__(self, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """A dictionary of tensors."""
        clips = clips_of(rows, extractor_of(self.processor), self.load, self.augment)
        texts = [str(row["text"]) for row in rows] if "text" in rows[0] else None
        try:
            batch = self._labelled(clips, texts) if self.end is None else self._prompted(clips, texts)
        except ImportError as error:
            name = type(self.processor).__name__
            raise UnsupportedError(f"{name} cannot make a batch: {error}", "install what it names") from error
        return {name: value for name, value in batch.items() if name in self.takes}

    def _labelled(self, clips: list[Any], texts: list[str] | None) -> dict[str, Any]:
        options = {"sampling_rate": rate_of(self.processor), "return_tensors": "pt"}
        if texts is None:
            return dict(self.processor(clips, **options))
        return dict(self.processor(clips, text=texts, text_kwargs={"padding": True}, **options))

    def _prompted(self, clips: list[Any], texts: list[str] | None) -> dict[str, Any]:
        batch = prompted(self.processor, clips, self.language, self.prompt)
        if texts is None:
            return batch
        prompts = next(batch[name] for name in ("decoder_input_ids", "input_ids") if name in batch)
        if len(prompts) != len(texts):
            raise UnsupportedError(
                f"{type(self.processor).__name__} makes {len(prompts)} rows of {len(texts)} clips",
                "cut long clips with their texts (docs/long-clips.md)",
            )
        tokenizer = self.processor.tokenizer
        transcripts = [[*tokenizer(text, add_special_tokens=False).input_ids, self.end] for text in texts]
        return with_transcripts(batch, transcripts, tokenizer.pad_token_id)


def collator_of(processor: Any, model: Any, **options: Unpack[CollatorSettings]) -> Any:
    """The collator of rows with ``audio`` and ``text`` for ``model``, whatever it is wrapped in.

    ``CTCCollator`` for CTC, unless the processor pads its own batches; ``Seq2SeqCollator`` for an encoder and a decoder
    that starts from one token, such as Whisper; else ``ProcessorCollator``: for transducers, for audio LLMs, and for
    decoders with a prompt. ``options`` are those of the collator.

    >>> from asrconfig_go.recipe import build_processor, load_model
    >>> processor = build_processor(["one two", "three"], "tiny-wav2vec2")
    >>> type(collator_of(processor, load_model("tiny-wav2vec2", processor))).__name__
    'CTCCollator'
    """
    model = bare(model)
    config = model.config
    fixed: dict[str, Any] = {}
    kind: Any = ProcessorCollator
    if speech_kind(config) == "ctc" and hasattr(processor, "pad"):  # others pad their own batches
        kind = CTCCollator
    elif (
        getattr(config, "is_encoder_decoder", False) and not ends_with_frames(config) and not writes_prompts(processor)
    ):
        kind, fixed = Seq2SeqCollator, {"decoder_start_token_id": decoder_start(config)}
    else:
        if speech_kind(config) == "audio-llm":
            check_prompts(processor)
        fixed = {"takes": frozenset(inspect.signature(model.forward).parameters), "end": end_token(processor, model)}
    names = [name for name in inspect.signature(kind).parameters if name not in ("processor", *fixed)]
    keywords = {name: value for name, value in options.items() if value is not None or name in names}
    check_keywords(keywords, names, "make_collator")
    return kind(processor, **fixed, **keywords)


def asked_language(processor: Any, language: str | None) -> CollatorSettings:
    """The option of a collator for what is spoken: none where the processor writes no prompts."""
    return {} if language is None or not writes_prompts(processor) else {"language": language}


def end_token(processor: Any, model: Any) -> int | None:
    """The token that ends a transcript; None where none does: in CTC and transducers, which end with their frames."""
    tokenizer, model = getattr(processor, "tokenizer", None), bare(model)
    if ends_with_frames(model.config):
        return None
    ends = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    ends = [ends] if isinstance(ends, int) else list(ends or ())
    own = getattr(tokenizer, "eos_token_id", None)
    end = own if own in ends or not ends else ends[0]
    if end is None:
        raise UnsupportedError(
            f"{type(processor).__name__} has no token that ends a transcript", "set processor.tokenizer.eos_token"
        )
    return int(end)


def decoder_start(config: Any) -> int:
    """The token that the decoder starts from."""
    starts = (getattr(config, name, None) for name in ("decoder_start_token_id", "bos_token_id"))
    start = next((token for token in starts if token is not None), None)
    if start is None:
        raise InvalidArgumentError(
            f"{type(config).__name__} has no token that the decoder starts from",
            "set model.config.decoder_start_token_id, such as to processor.tokenizer.bos_token_id",
        )
    return int(start)
