"""Processors: what makes a model's input of audio, and labels of transcripts."""

from __future__ import annotations

import difflib
import json
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .._base.defaults import SAMPLING_RATE
from .._base.errors import InvalidArgumentError
from .._base.hub_connection import offline, without_retries
from .._base.hub_downloads import OFFLINE, from_hub
from ..demo.tiny_models import TINY
from .model_kinds import TINY_CTC, by_characters, config_of, family, is_here
from .required_packages import need

PAD, UNKNOWN, DELIMITER = "[PAD]", "[UNK]", "|"


def build_processor(texts: Iterable[str], model: str, *, language: str | None = None) -> Any:
    """The processor for ``model``: a ``Wav2Vec2Processor`` or its like for CTC, else the checkpoint's own.

    For CTC the vocabulary is made of the characters of ``texts``, with ``[PAD]`` (the CTC blank), ``|`` (between words)
    and ``[UNK]``, unless the checkpoint has one with all of them; audio is prepared as the checkpoint says, by name
    ``"wav2vec2"`` or ``"tiny-wav2vec2"`` as wav2vec2 does. For Whisper it is the checkpoint's own, set to transcribe
    ``language`` (``"german"`` or ``"de"``; None leaves it to the model), and for the tiny models one whose vocabulary
    is learnt from ``texts``. Those and ``"wav2vec2"`` are made offline. Others take a language with each batch.

    Raises ``InvalidArgumentError`` when ``texts`` hold no character, and ``NotFoundError`` for what cannot be loaded.

    >>> processor = build_processor(["one two", "three"], "tiny-wav2vec2")
    >>> sorted(processor.tokenizer.get_vocab())[:3]
    ['[PAD]', '[UNK]', 'e']
    """
    need("build_processor", "transformers")
    transcripts = [text for text in texts if text and text.strip()]
    if not transcripts:
        raise InvalidArgumentError("there is no transcript to make a vocabulary of", "check the column of transcripts")
    if model in TINY and model != TINY_CTC:
        from .tiny_processors import tiny_processor

        return tiny_processor(model, transcripts)
    family(model)
    if model == "wav2vec2" or by_characters(model):
        return _ctc(transcripts, model)
    return _whisper(model, language) if config_of(model).model_type == "whisper" else _own(model)


def _own(model: str) -> Any:
    from transformers import AutoProcessor

    return from_hub("the processor of", model, lambda: AutoProcessor.from_pretrained(model), OFFLINE)


def _whisper(model: str, language: str | None) -> Any:
    from transformers import WhisperProcessor
    from transformers.models.whisper.tokenization_whisper import TO_LANGUAGE_CODE

    processor = from_hub("the processor of", model, lambda: WhisperProcessor.from_pretrained(model), OFFLINE)
    if not _is_multilingual(model):
        if language is not None and language.lower() not in ("en", "english"):
            raise InvalidArgumentError(f"{model!r} supports English only, not {language!r}", "choose another model")
        return processor
    try:
        processor.tokenizer.set_prefix_tokens(language=language and language.lower(), task="transcribe")
        _ = processor.tokenizer.prefix_tokens  # older versions look at the language here alone
    except ValueError as error:
        near = difflib.get_close_matches(str(language).lower(), TO_LANGUAGE_CODE, n=1)
        hint = f"did you mean {near[0]!r}?" if near else "name it in English, as german, or by its code, as de"
        raise InvalidArgumentError(f"Whisper has no language {language!r}", hint) from error
    return processor


def _is_multilingual(model: str) -> bool:
    """Whether a Whisper checkpoint has tokens for languages and tasks; English-only ones have none."""
    from transformers import GenerationConfig

    try:
        with without_retries(offline()):
            return bool(getattr(GenerationConfig.from_pretrained(model), "is_multilingual", True))
    except OSError:  # a folder without one
        return not model.endswith(".en")


def _ctc(texts: list[str], model: str) -> Any:
    from transformers import Wav2Vec2BertProcessor, Wav2Vec2Processor

    extractor = _feature_extractor(model)
    characters = set("".join(texts))
    tokenizer = _own_tokenizer(model, characters) or ctc_tokenizer(characters)
    spectrogram = "input_features" in extractor.model_input_names
    kind = Wav2Vec2BertProcessor if spectrogram else Wav2Vec2Processor
    return kind(feature_extractor=extractor, tokenizer=tokenizer)


def _feature_extractor(model: str) -> Any:
    from transformers import AutoFeatureExtractor, Wav2Vec2FeatureExtractor

    if not is_here(model):
        return from_hub("the feature extractor of", model, lambda: AutoFeatureExtractor.from_pretrained(model), OFFLINE)
    return Wav2Vec2FeatureExtractor(
        feature_size=1, sampling_rate=SAMPLING_RATE, padding_value=0.0, do_normalize=True, return_attention_mask=True
    )


def _own_tokenizer(model: str, characters: set[str]) -> Any | None:
    from transformers import Wav2Vec2CTCTokenizer

    if is_here(model):
        return None
    try:
        tokenizer = Wav2Vec2CTCTokenizer.from_pretrained(model)
        vocabulary = set(tokenizer.get_vocab())
    except (OSError, TypeError, ValueError):  # a pre-trained checkpoint has none
        return None
    return tokenizer if {DELIMITER if c == " " else c for c in characters} <= vocabulary else None


def ctc_tokenizer(characters: Iterable[str]) -> Any:
    """A ``Wav2Vec2CTCTokenizer`` of single characters: the blank is 0, the others follow in order, unknown is last."""
    from transformers import Wav2Vec2CTCTokenizer

    letters = sorted({*characters, " "} - {DELIMITER})
    vocabulary = {PAD: 0} | {DELIMITER if c == " " else c: i for i, c in enumerate(letters, start=1)}
    vocabulary[UNKNOWN] = len(vocabulary)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "vocab.json"
        file.write_text(json.dumps(vocabulary, ensure_ascii=False), encoding="utf-8")
        return Wav2Vec2CTCTokenizer(
            str(file), unk_token=UNKNOWN, pad_token=PAD, word_delimiter_token=DELIMITER, bos_token=None, eos_token=None
        )
