"""Prompts for a batch of clips, as a processor writes them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from .._base.defaults import SAMPLING_RATE
from .._base.errors import InvalidArgumentError, UnsupportedError

_PROMPT = "Transcribe the speech into text."
_LANGUAGES = ("language", "source_language")  # what a request calls it


def extractor_of(processor: Any) -> Any:
    """The part of a processor that makes features of audio."""
    for name in ("feature_extractor", "audio_processor"):
        if getattr(processor, name, None) is not None:
            return getattr(processor, name)
    raise InvalidArgumentError(
        f"{type(processor).__name__} has no feature extractor for audio",
        "pass the model's processor, such as AutoProcessor.from_pretrained(…)",
    )


def rate_of(processor: Any) -> int:
    """The sampling rate that the processor takes."""
    return int(getattr(extractor_of(processor), "sampling_rate", SAMPLING_RATE))


def own_multiple(processor: Any) -> int | None:
    """The multiple of samples that the processor itself pads a batch to; None for any length."""
    settings = getattr(processor, "audio_kwargs", None)
    if settings is None:  # before transformers had them on the processor
        settings = getattr(getattr(processor, "valid_processor_kwargs", None), "_defaults", {}).get("audio_kwargs", {})
    multiple = settings.get("pad_to_multiple_of")
    return None if multiple is None else int(multiple)


def check_prompts(processor: Any) -> None:
    """Raise ``UnsupportedError`` of a processor for an audio LLM that cannot write a prompt with audio in it."""
    if not hasattr(processor, "apply_transcription_request") and getattr(processor, "audio_token", None) is None:
        raise UnsupportedError(
            f"{type(processor).__name__} writes no prompt with audio in it, for a transcript to follow",
            "pass a collator of your own, which aligns text and audio as the model's makers do",
        )


def writes_prompts(processor: Any) -> bool:
    """Whether a decoder's input begins with a prompt that the processor writes."""
    requests = hasattr(processor, "apply_transcription_request")
    return requests or getattr(processor, "chat_template", None) is not None or _asks_for_language(processor)


def prompted(processor: Any, clips: Sequence[Any], language: str | None, prompt: str | None) -> dict[str, Any]:
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


def _called(processor: Any, texts: Sequence[str], clips: Sequence[Any]) -> dict[str, Any]:
    # How audio is padded is the processor's own rule, which "padding" beside "text_kwargs" would replace.
    padded = {"text_kwargs": {"padding": True}, "return_tensors": "pt"}
    return dict(processor(text=list(texts), audio=list(clips), **padded))


def _request_options(
    processor: Any, request: Callable[..., Any], language: str | None, prompt: str | None
) -> dict[str, Any]:
    options: dict[str, Any] = {} if language is None else dict.fromkeys(_LANGUAGES, language)
    options |= {} if prompt is None else {"prompt": prompt}
    name = getattr(processor.tokenizer, "name_or_path", "")
    options |= {"model_id": name, "sampling_rate": rate_of(processor), "format": "wav"}
    return {name: value for name, value in options.items() if name in _parameters(request)}


def _chat_prompts(processor: Any, count: int, prompt: str | None) -> list[str]:
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


def _templated(processor: Any, content: Any) -> str:
    owner = processor if getattr(processor, "chat_template", None) is not None else processor.tokenizer
    turns = [{"role": "user", "content": content}]
    return str(owner.apply_chat_template(turns, tokenize=False, add_generation_prompt=True))


def _has_template(processor: Any) -> bool:
    return any(getattr(part, "chat_template", None) is not None for part in (processor, processor.tokenizer))


def _asks_for_language(processor: Any) -> bool:
    language = _parameters(type(processor).__call__).get("language")
    return language is not None and language.default is inspect.Parameter.empty


def _parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(function).parameters)
