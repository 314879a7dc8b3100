"""The small models and their processors: vocabularies learnt from transcripts, random weights, no network."""

from __future__ import annotations

from typing import Any

from .._base.speech_kinds import class_for
from ..demo.tiny_models import AUDIO_TOKENS, CHAT_TEMPLATE, CHAT_TOKENS, MEL_BINS, TINY
from .byte_level import tiny_whisper_processor
from .model_kinds import TINY_WHISPER, config_of

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


def tiny_model(model: str, processor: Any, seed: int) -> Any:
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


def _whisper_sizes(processor: Any) -> dict[str, int]:
    tokenizer, extractor = processor.tokenizer, processor.feature_extractor
    end, start = tokenizer.convert_tokens_to_ids(["<|endoftext|>", "<|startoftranscript|>"])
    return {
        "vocab_size": len(tokenizer), "num_mel_bins": extractor.feature_size,
        "max_source_positions": extractor.nb_max_frames // 2,
        **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"), end), "decoder_start_token_id": start,
    }  # fmt: skip


def _whisper_generation(config: Any, processor: Any) -> Any:
    from transformers import GenerationConfig

    names = ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id")
    return GenerationConfig(
        max_length=config.max_target_positions, is_multilingual=False, return_timestamps=False,
        no_timestamps_token_id=processor.tokenizer.convert_tokens_to_ids("<|notimestamps|>"),
        **{name: getattr(config, name) for name in names},
    )  # fmt: skip
