"""Batches with labels for speech models of transformers.

They also read datasets whose ``Audio`` datasets cannot decode: from version 4 on it needs torchcodec and FFmpeg.
"""

from __future__ import annotations

import inspect
import io
import wave
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from .._core.checks import at_least, checked
from .._core.output import logger
from .._core.settings import SAMPLING_RATE
from ..data.label_rules import IGNORED
from ..data.source import open_source
from ..errors import InvalidArgumentError, UnsupportedError
from .augmentation import Augmentation
from .decoding import load_audio
from .features import model_inputs

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerBase, ProcessorMixin, Trainer

_PROMPT = "Transcribe the speech into text."
_LANGUAGES = ("language", "source_language")  # what a request calls it


def labels_of(
    rows: Sequence[dict[str, Any]], tokenizer: PreTrainedTokenizerBase, *, ended: bool = False
) -> list[list[int]] | None:
    """The label ids of each row: its ``labels``, else its ``text`` as ``text_ids``; None when no row has either."""
    have = [name for name in ("labels", "text") if name in rows[0]]
    if not have:
        return None
    name = have[0]
    missing = next((i for i, row in enumerate(rows) if row.get(name) is None), None)
    if missing is not None:
        raise InvalidArgumentError(f"row {missing} of the batch has no {name}", "leave out the clips without a text")
    if name == "labels":
        return [[int(token) for token in row["labels"]] for row in rows]
    if tokenizer is None:
        raise InvalidArgumentError("the processor has no tokenizer for the texts", 'pass rows with "labels"')
    return text_ids([row["text"] for row in rows], tokenizer, ended=ended)


def text_ids(texts: Sequence[str], tokenizer: PreTrainedTokenizerBase, *, ended: bool = False) -> list[list[int]]:
    """The tokens of each text; ``ended``: with the end token behind them where the tokenizer writes none."""
    rows: list[list[int]] = [list(ids) for ids in tokenizer(list(texts)).input_ids]
    end = getattr(tokenizer, "eos_token_id", None) if ended else None
    return [ids if end is None or ids[-1:] == [end] else [*ids, end] for ids in rows]


def padded_ids(rows: Sequence[Sequence[int]], value: int, multiple: int | None = None) -> torch.Tensor:
    """An int64 tensor (rows, longest), padded with ``value`` at the end, to a multiple where one is given."""
    import torch

    width = max(map(len, rows))
    if multiple:
        width = -(-width // multiple) * multiple
    padded = torch.full((len(rows), width), value, dtype=torch.long)
    for row, tokens in zip(padded, rows, strict=True):
        row[: len(tokens)] = torch.as_tensor(tokens, dtype=torch.long)
    return padded


def extractor_of(processor: ProcessorMixin) -> Any:
    """The part of a processor that makes features of audio."""
    for name in ("feature_extractor", "audio_processor"):
        if getattr(processor, name, None) is not None:
            return getattr(processor, name)
    raise _no_extractor(processor)


def _no_extractor(processor: ProcessorMixin) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{type(processor).__name__} has no feature extractor for audio",
        "pass the model's processor, such as AutoProcessor.from_pretrained(…)",
    )


def rate_of(processor: ProcessorMixin) -> int:
    """The sampling rate that the processor takes."""
    return int(getattr(extractor_of(processor), "sampling_rate", SAMPLING_RATE))


def own_multiple(processor: ProcessorMixin) -> int | None:
    """The multiple of samples that the processor itself pads a batch to; None for any length."""
    settings = getattr(processor, "audio_kwargs", None)
    if settings is None:  # before transformers had them on the processor
        settings = getattr(getattr(processor, "valid_processor_kwargs", None), "_defaults", {}).get("audio_kwargs", {})
    multiple = settings.get("pad_to_multiple_of")
    return None if multiple is None else int(multiple)


def check_prompts(processor: ProcessorMixin) -> None:
    """Raise ``UnsupportedError`` of a processor for an audio LLM that cannot write a prompt with audio in it."""
    if not hasattr(processor, "apply_transcription_request") and getattr(processor, "audio_token", None) is None:
        raise UnsupportedError(
            f"{type(processor).__name__} writes no prompt with audio in it, for a transcript to follow",
            "pass a collator of your own, which aligns text and audio as the model's makers do",
        )


def writes_prompts(processor: ProcessorMixin) -> bool:
    """Whether a decoder's input begins with a prompt that the processor writes."""
    requests = hasattr(processor, "apply_transcription_request")
    return requests or getattr(processor, "chat_template", None) is not None or _asks_for_language(processor)


def prompted(
    processor: ProcessorMixin, clips: Sequence[Any], language: str | None, prompt: str | None
) -> dict[str, Any]:
    """A batch that ends where the transcript begins, as ``generate`` takes it."""
    if _asks_for_language(processor):
        if language is None:
            name = type(processor).__name__
            raise InvalidArgumentError(f"{name} needs a language", "name it: language=… (--language)")
        rate = rate_of(processor)
        return dict(processor(list(clips), language=language, sampling_rate=rate, return_tensors="pt"))
    request = getattr(processor, "apply_transcription_request", None)
    by_template = request is not None and "tokenize" in _parameters(request)
    if request is None or (by_template and not _has_template(processor)):
        return _called(processor, _chat_prompts(processor, len(clips), prompt), clips)
    options = _request_options(processor, request, language, prompt)
    if by_template:
        return _called(processor, request(list(clips), tokenize=False, **options), clips)
    return dict(request(list(clips), **options))


def _called(processor: ProcessorMixin, texts: Sequence[str], clips: Sequence[Any]) -> dict[str, Any]:
    # How audio is padded is the processor's own rule, which "padding" beside "text_kwargs" would replace.
    padded = {"text_kwargs": {"padding": True}, "return_tensors": "pt"}
    return dict(processor(text=list(texts), audio=list(clips), **padded))


def _request_options(
    processor: ProcessorMixin, request: Callable[..., Any], language: str | None, prompt: str | None
) -> dict[str, Any]:
    options: dict[str, Any] = {} if language is None else dict.fromkeys(_LANGUAGES, language)
    options |= {} if prompt is None else {"prompt": prompt}
    name = getattr(processor.tokenizer, "name_or_path", "")
    options |= {"model_id": name, "sampling_rate": rate_of(processor), "format": "wav"}
    return {name: value for name, value in options.items() if name in _parameters(request)}


def _chat_prompts(processor: ProcessorMixin, count: int, prompt: str | None) -> list[str]:
    check_prompts(processor)
    place = str(processor.audio_token)
    if not _has_template(processor):
        ends = (getattr(processor, f"audio_{end}_token", None) or "" for end in ("bos", "eos"))
        return [place.join(ends) + (prompt or "")] * count
    instruction = {"type": "text", "text": prompt or _PROMPT}
    text = _templated(processor, [{"type": "audio"}, instruction])
    if text.count(place) != 1:  # a template of text alone: the place goes into the text, as Granite's cards write it
        text = _templated(processor, f"{place}{prompt or _PROMPT}")
    return [text] * count


def _templated(processor: ProcessorMixin, content: str | list[dict[str, str]]) -> str:
    owner = processor if getattr(processor, "chat_template", None) is not None else processor.tokenizer
    turns = [{"role": "user", "content": content}]
    return str(owner.apply_chat_template(turns, tokenize=False, add_generation_prompt=True))


def _has_template(processor: ProcessorMixin) -> bool:
    return any(getattr(part, "chat_template", None) is not None for part in (processor, processor.tokenizer))


def _asks_for_language(processor: ProcessorMixin) -> bool:
    language = _parameters(type(processor).__call__).get("language")
    return language is not None and language.default is inspect.Parameter.empty


def _parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(function).parameters)


@dataclass(frozen=True)
class CTCCollator:
    """Collates rows to a batch of a CTC model.

    A row has ``audio`` or the model's input (``input_values`` or ``input_features``), and ``labels`` (ids) or ``text``;
    rows without either make a batch without labels. A batch has ``input_values`` or ``input_features``, the attention
    mask where the extractor makes one, and ``labels``. Inputs are padded to the longest one, labels with -100. The
    values equal those that the processor makes of each clip and pads by its own ``pad``.

    Args:
        processor: The model's processor.
        pad_to_multiple_of: The multiple of samples (or frames) to which inputs are padded; None for the processor's
            own, if it has one.
        load: Reads the ``audio`` of a row, such as ``load_audio`` or a ``ResampledCache``; its errors are raised as
            they are.
        augment: Augmentations of the audio, applied one after the other, but not to rows whose ``augment`` is false: a
            Trainer evaluates with the same collator, so add that column to the data to evaluate on. Their draws follow
            torch's generator: the same seed and number of workers make the same batches.

    Raises:
        InvalidArgumentError: A batch has rows without audio, the sampling rate of ``load`` is not the model's, the
            processor has no feature extractor, or ``pad_to_multiple_of`` is less than 1.

    Example:
        >>> from asrconfig_go.recipe import build_processor
        >>> processor = build_processor(["one two"], "tiny-wav2vec2")
        >>> collate = CTCCollator(processor, augment=[ChangeSpeed(), AddNoise()])
        >>> collate([{"audio": CLIPS / "test-000.mp3", "text": "one two"}])["labels"].shape
        torch.Size([1, 7])
    """

    processor: ProcessorMixin
    pad_to_multiple_of: int | None = None
    load: Callable[[Any], Any] = load_audio
    augment: Sequence[Augmentation] = ()

    def __post_init__(self) -> None:
        _check_multiple(self.pad_to_multiple_of)

    def __call__(self, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Return the batch of these rows, a dictionary of tensors."""
        batch, labels = _inputs_and_labels(self, rows)
        return batch if labels is None else {**batch, "labels": padded_ids(labels, IGNORED)}


@dataclass(frozen=True)
class Seq2SeqCollator:
    """Collates rows to a batch of an encoder and a decoder, such as Whisper.

    Rows and batches are those of ``CTCCollator``, except that labels lose ``decoder_start_token_id`` where the
    tokenizer put it in front, since the model does so itself, and those of a ``text`` end with the tokenizer's end
    token.

    Args:
        processor: The model's processor.
        decoder_start_token_id: The token that the decoder starts from.
        pad_to_multiple_of: The multiple to which labels are padded, and inputs unless they always have the same length,
            as Whisper's 30 s; None for no multiple of labels, and the processor's own of inputs.
        load: Reads the ``audio`` of a row; its errors are raised as they are.
        augment: Augmentations of the audio, as for ``CTCCollator``.

    Raises:
        InvalidArgumentError: As for ``CTCCollator``.
    """

    processor: ProcessorMixin
    decoder_start_token_id: int
    pad_to_multiple_of: int | None = None
    load: Callable[[Any], Any] = load_audio
    augment: Sequence[Augmentation] = ()

    def __post_init__(self) -> None:
        checked("decoder_start_token_id", self.decoder_start_token_id, int)
        _check_multiple(self.pad_to_multiple_of)

    def __call__(self, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Return the batch of these rows, a dictionary of tensors."""
        batch, labels = _inputs_and_labels(self, rows, ended=True)
        if labels is None:
            return batch
        start = [self.decoder_start_token_id]  # which the model puts in front again
        labels = [tokens[1:] if tokens[:1] == start else tokens for tokens in labels]
        return {**batch, "labels": padded_ids(labels, IGNORED, self.pad_to_multiple_of)}


def _inputs_and_labels(
    collator: CTCCollator | Seq2SeqCollator, rows: Sequence[dict[str, Any]], *, ended: bool = False
) -> tuple[dict[str, Any], list[list[int]] | None]:
    processor = collator.processor
    extractor = getattr(processor, "feature_extractor", processor)
    if not hasattr(extractor, "sampling_rate") or not hasattr(extractor, "pad"):
        raise _no_extractor(processor)
    multiple = collator.pad_to_multiple_of or own_multiple(processor)
    batch = model_inputs(rows, extractor, collator.load, collator.augment, multiple)
    return batch, labels_of(rows, getattr(processor, "tokenizer", None), ended=ended)


def _check_multiple(multiple: int | None) -> None:
    if multiple is not None:
        at_least("pad_to_multiple_of", multiple, 1, "8, or None for no multiple")


@cache
def cannot_decode() -> str:
    """The reason why ``datasets`` cannot decode audio here, or "": it tries with a clip of a few samples."""
    file = io.BytesIO()
    with wave.open(file, "wb") as clip:
        clip.setnchannels(1)
        clip.setsampwidth(2)
        clip.setframerate(16_000)
        clip.writeframes(bytes(320))
    try:
        from datasets import Audio

        from .decoding import load_audio

        load_audio(Audio().decode_example({"bytes": file.getvalue(), "path": None}))
    except Exception as error:  # torchcodec raises RuntimeError without FFmpeg, OSError for another torch, and others
        return str(error).strip().partition("\n")[0].removesuffix(" Likely causes:") or type(error).__name__
    return ""


def readable(dataset: Any, collator: object) -> Any:
    """``dataset`` undecoded where ``datasets`` cannot decode it and ``collator``, one of this package, can."""
    source = open_source(dataset)
    decoded = any(part.decoded_columns() for part in source.parts.values())
    if not isinstance(collator, CTCCollator | Seq2SeqCollator) or not decoded or not cannot_decode():
        return dataset
    logger.warning("datasets cannot decode audio here (%s): soundfile does", cannot_decode())
    return source.undecoded()


def make_readable(trainer: Trainer) -> None:
    """Apply ``readable`` to the datasets of a Trainer."""
    collator = getattr(trainer, "data_collator", None)
    for name in ("train_dataset", "eval_dataset"):
        if getattr(trainer, name, None) is not None:
            setattr(trainer, name, readable(getattr(trainer, name), collator))
