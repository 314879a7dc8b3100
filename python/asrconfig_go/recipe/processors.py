"""Kinds of speech models, and processors: a model's input of audio, labels of transcripts; small ones learnt."""

from __future__ import annotations

import difflib
import json
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._core.modules import SpeechKind, class_for, speech_kind
from .._core.output import with_article
from .._core.requirements import OFFLINE, from_hub, need, offline, without_retries
from .._core.settings import SAMPLING_RATE
from ..errors import CorruptFileError, InvalidArgumentError, UnsupportedError
from ..trace.model import Model
from ..trace.tiny_models import AUDIO_TOKENS, CHAT_TEMPLATE, CHAT_TOKENS, MEL_BINS, TINY

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel, ProcessorMixin

TINY_CTC, TINY_WHISPER = "tiny-wav2vec2", "tiny-whisper"


def is_here(model: str) -> bool:
    """Whether the processor of ``model`` needs no files."""
    return model in TINY or model == "wav2vec2"


def family(model: str) -> SpeechKind:
    """The kind by a model's name, folder or configuration on the Hub.

    Raises ``UnsupportedError`` for models of another kind, ``NotFoundError`` for what cannot be loaded.
    """
    config = config_of(model)
    kind = speech_kind(config)
    if kind is None:
        raise UnsupportedError(
            f"{model!r} is {with_article(config.model_type)}, which no class of transformers recognises speech with",
            "choose a model for CTC, a transducer, an encoder and a decoder, or an audio LLM (docs/audio-llms.md)",
        )
    return kind


def config_of(model: str) -> Any:
    """The transformers config of a name, a folder, or a repository on the Hub."""
    from transformers import AutoConfig, __version__

    values = Model.of(model).config_json
    if not isinstance(values.get("model_type"), str):
        raise CorruptFileError(f"the config of {model!r} has no model_type", "save the model again")
    try:
        return AutoConfig.for_model(**values)
    except ValueError as error:
        raise UnsupportedError(
            f"transformers {__version__} does not know {values['model_type']}, which {model!r} is",
            "pip install -U transformers",
        ) from error


def by_characters(model: str) -> bool:
    """Whether a CTC model's vocabulary is made of the transcripts' characters, with a new head.

    So it is where transformers pairs a model with wav2vec2's processor, or with none; other processors of CTC models
    have a vocabulary that belongs to the checkpoint.
    """
    from transformers.models.auto.processing_auto import PROCESSOR_MAPPING_NAMES

    config = config_of(model)
    name = PROCESSOR_MAPPING_NAMES.get(config.model_type) or ""
    return speech_kind(config) == "ctc" and (not name or name.startswith("Wav2Vec2"))


PAD, UNKNOWN, DELIMITER = "[PAD]", "[UNK]", "|"


def build_processor(texts: Iterable[str], model: str, *, language: str | None = None) -> Any:
    """Build the processor of a model: its feature extractor and tokenizer.

    For CTC it is a ``Wav2Vec2Processor`` or its like. Its vocabulary is made of the characters of ``texts``, with
    ``[PAD]`` (the CTC blank), ``|`` (between words) and ``[UNK]``, unless the checkpoint has one with all of them.
    Audio is prepared as the checkpoint says, and for ``"wav2vec2"`` and ``"tiny-wav2vec2"`` as wav2vec2 does. For
    Whisper and other models it is the checkpoint's own, and for the tiny models one whose vocabulary is learnt from
    ``texts``.

    Args:
        texts: The transcripts to train on.
        model: A folder or a name on the Hub; or ``"wav2vec2"`` or a tiny model (see ``load_model``), for which nothing
            is downloaded.
        language: What Whisper transcribes, as ``"german"`` or ``"de"``; None leaves it to the model. Other models
            ignore it: those that take a language take it with each batch.

    Returns:
        A processor of transformers.

    Raises:
        InvalidArgumentError: ``texts`` hold no character, or Whisper does not support the language.
        NotFoundError: The checkpoint cannot be found or downloaded.
        UnsupportedError: The model does not recognise speech, or transformers is not installed.

    Example:
        >>> processor = build_processor(["one two", "three"], "tiny-wav2vec2")
        >>> sorted(processor.tokenizer.get_vocab())[:3]
        ['[PAD]', '[UNK]', 'e']
    """
    need("build_processor", "transformers")
    transcripts = [text for text in texts if text and text.strip()]
    if not transcripts:
        raise InvalidArgumentError("there is no transcript to make a vocabulary of", "check the column of transcripts")
    if model in TINY and model != TINY_CTC:
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


_BYTE_TOKENS = 512  # of bytes and merged pairs
_MARKS = ("<|endoftext|>", "<|startoftranscript|>", "<|translate|>", "<|transcribe|>", "<|notimestamps|>")
SECONDS = 5  # of input of the tiny model


def tiny_whisper_processor(texts: list[str]) -> Any:
    """A ``WhisperProcessor`` for clips of up to ``SECONDS``, without languages and timestamps."""
    from transformers import WhisperFeatureExtractor, WhisperProcessor

    extractor = WhisperFeatureExtractor(feature_size=MEL_BINS, chunk_length=SECONDS)
    return WhisperProcessor(feature_extractor=extractor, tokenizer=_tokenizer(texts))


def _tokenizer(texts: list[str]) -> Any:
    from tokenizers import ByteLevelBPETokenizer
    from transformers import AddedToken, WhisperTokenizer

    learnt = ByteLevelBPETokenizer()
    learnt.train_from_iterator(texts, vocab_size=_BYTE_TOKENS, min_frequency=2, show_progress=False)
    with tempfile.TemporaryDirectory() as folder:
        learnt.save_model(folder)
        tokenizer = WhisperTokenizer.from_pretrained(folder, pad_token=_MARKS[0])
    tokenizer.add_tokens([AddedToken(mark, special=True, normalized=False) for mark in _MARKS], special_tokens=True)
    tokenizer.set_prefix_tokens()
    return tokenizer


_TOKENS = 320  # of bytes and merged pairs: words of the bundled clips are one token each


def tiny_processor(model: str, texts: list[str]) -> Any:
    """The processor of a small model that is not for CTC by characters, by its name."""
    makers = {"tiny-whisper": tiny_whisper_processor, "tiny-moonshine": _moonshine, "tiny-parakeet-tdt": _parakeet}
    return makers.get(model, _qwen3_asr)(texts)


def _moonshine(texts: list[str]) -> Any:
    from transformers import PreTrainedTokenizerFast, Wav2Vec2FeatureExtractor, Wav2Vec2Processor

    learnt = _words(texts, ["<unk>", "<s>", "</s>"])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=learnt, unk_token="<unk>", bos_token="<s>", eos_token="</s>", pad_token="</s>"
    )
    extractor = Wav2Vec2FeatureExtractor(do_normalize=False, return_attention_mask=True)
    return Wav2Vec2Processor(feature_extractor=extractor, tokenizer=tokenizer)


def _parakeet(texts: list[str]) -> Any:
    from transformers import ParakeetFeatureExtractor, ParakeetProcessor, ParakeetTokenizer

    marks = ["<unk>", "<pad>", "<blank>"]
    tokenizer = ParakeetTokenizer(
        tokenizer_object=_words(texts, marks), unk_token="<unk>", pad_token="<pad>", extra_special_tokens=["<blank>"]
    )
    extractor = ParakeetFeatureExtractor(feature_size=MEL_BINS)
    return ParakeetProcessor(extractor, tokenizer, decoder_type="tdt")


def _qwen3_asr(texts: list[str]) -> Any:
    from transformers import PreTrainedTokenizerFast, Qwen3ASRFeatureExtractor, Qwen3ASRProcessor

    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=_words(texts, [*CHAT_TOKENS, *AUDIO_TOKENS.values()]),
        eos_token=CHAT_TOKENS[1],
        pad_token=CHAT_TOKENS[2],
        extra_special_tokens=AUDIO_TOKENS,
    )
    extractor = Qwen3ASRFeatureExtractor(feature_size=MEL_BINS)
    return Qwen3ASRProcessor(extractor, tokenizer, chat_template=CHAT_TEMPLATE)


def _words(texts: list[str], marks: list[str]) -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    learnt = Tokenizer(models.BPE())
    learnt.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    learnt.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=_TOKENS, special_tokens=marks, initial_alphabet=alphabet, show_progress=False
    )
    learnt.train_from_iterator(texts, trainer)
    return learnt


def tiny_model(model: str, processor: ProcessorMixin, seed: int) -> PreTrainedModel:
    """Random weights for that processor's vocabulary, which depend on ``seed`` alone."""
    import torch
    import transformers

    config = config_of(model)
    sizes = _whisper_sizes(processor) if model == TINY_WHISPER else {"vocab_size": len(processor.tokenizer)}
    for name, value in sizes.items():
        setattr(config.get_text_config() if "text_config" in TINY[model] else config, name, value)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        built = getattr(transformers, class_for(config))(config)
    generation = built.generation_config
    if model == TINY_WHISPER:
        built.generation_config = _whisper_generation(config, processor)
    elif generation.decoder_start_token_id is None and hasattr(config, "blank_token_id"):
        generation.decoder_start_token_id = config.blank_token_id
        durations = range(config.vocab_size, config.vocab_size + len(getattr(config, "durations", ())))
        generation.suppress_tokens = list(durations) or None  # no tokens, though their logits follow the tokens'
    return built


def _whisper_sizes(processor: ProcessorMixin) -> dict[str, int]:
    tokenizer, extractor = processor.tokenizer, processor.feature_extractor
    end, start = tokenizer.convert_tokens_to_ids(["<|endoftext|>", "<|startoftranscript|>"])
    return {
        "vocab_size": len(tokenizer), "num_mel_bins": extractor.feature_size,
        "max_source_positions": extractor.nb_max_frames // 2,
        **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"), end), "decoder_start_token_id": start,
    }  # fmt: skip


def _whisper_generation(config: PretrainedConfig, processor: ProcessorMixin) -> Any:
    from transformers import GenerationConfig

    names = ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id")
    return GenerationConfig(
        max_length=config.max_target_positions, is_multilingual=False, return_timestamps=False,
        no_timestamps_token_id=processor.tokenizer.convert_tokens_to_ids("<|notimestamps|>"),
        **{name: getattr(config, name) for name in names},
    )  # fmt: skip
