"""Small models of many kinds with processors, built without a network: vocabularies of bytes and random weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from asrconfig_go.recipe.processors import _words

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
CONFORMER = {**SIZES, "subsampling_conv_channels": 16, "layerdrop": 0.0, "num_mel_bins": 40}
WAVES = {
    **SIZES, "conv_dim": (16,) * 7, "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4, "layerdrop": 0.0,
}  # fmt: skip
COHERE = (
    "▁", "<|startofcontext|>", "<|startoftranscript|>", "<|emo:undefined|>", "<|en|>", "<|pnc|>", "<|noitn|>",
    "<|notimestamp|>", "<|nodiarize|>",
)  # fmt: skip
OMNI = (
    "{% for m in messages %}{% for c in m['content'] %}{% if c['type'] == 'audio' %}<extra_id_1>{% endif %}"
    "{% endfor %}{% if m['role'] == 'user' %}<s>{% endif %}{% endfor %}"
)


def tokenizer(texts: list[str], marks: list[str], kind: Any = None, **special: str) -> Any:
    """A fast tokenizer that begins with ``marks``."""
    import transformers

    return (kind or transformers.PreTrainedTokenizerFast)(tokenizer_object=_words(texts, marks), **special)


def _ends(texts: list[str], *marks: str) -> Any:
    special = {"unk_token": "<unk>", "pad_token": "<pad>", "eos_token": "<eos>", "bos_token": "<bos>"}
    return tokenizer(texts, [*special.values(), *marks], **special)


def canary(t: Any, texts: list[str]) -> tuple[Any, Any]:
    letters = _ends(texts, "<|startoftranscript|>", "<|en|>", "<|pnc|>")
    template = "{% for m in messages %}<|startoftranscript|><|en|><|pnc|>{% endfor %}"
    processor = t.CanaryProcessor(t.ParakeetFeatureExtractor(feature_size=40), letters, chat_template=template)
    ids = {"vocab_size": len(letters), "pad_token_id": 1, "eos_token_id": 2, "bos_token_id": 3}
    decoder = {**SIZES, **ids, "head_dim": 16, "num_key_value_heads": 2, "max_position_embeddings": 128}
    config = t.CanaryConfig(encoder_config=CONFORMER, decoder_config=decoder, decoder_start_token_id=4, **ids)
    return processor, t.CanaryForConditionalGeneration(config)


def cohere(t: Any, texts: list[str]) -> tuple[Any, Any]:
    letters = _ends(texts, *COHERE)
    processor = t.CohereAsrProcessor(t.CohereAsrFeatureExtractor(feature_size=40), letters)
    ids = {"vocab_size": len(letters), "pad_token_id": 1, "eos_token_id": 2, "bos_token_id": 3}
    config = t.CohereAsrConfig(encoder_config=CONFORMER, max_position_embeddings=128, **ids, **SIZES)
    return processor, t.CohereAsrForConditionalGeneration(config)


def moonshine_streaming(t: Any, texts: list[str]) -> tuple[Any, Any]:
    letters = _ends(texts)
    processor = t.MoonshineStreamingProcessor(
        t.Wav2Vec2FeatureExtractor(do_normalize=False, return_attention_mask=True), letters
    )
    ids = {"pad_token_id": 1, "eos_token_id": 2, "bos_token_id": 3, "decoder_start_token_id": 3}
    encoder = {**SIZES, "num_key_value_heads": 2, "sliding_windows": [[16, 4], [16, 4]]}
    config = t.MoonshineStreamingConfig(
        vocab_size=len(letters), num_key_value_heads=2, max_position_embeddings=128, encoder_config=encoder, **ids,
        **SIZES,
    )  # fmt: skip
    return processor, t.MoonshineStreamingForConditionalGeneration(config)


def parakeet_ctc(t: Any, texts: list[str]) -> tuple[Any, Any]:
    letters = tokenizer(texts, ["<unk>", "<pad>"], t.ParakeetTokenizer, unk_token="<unk>", pad_token="<pad>")
    processor = t.ParakeetProcessor(t.ParakeetFeatureExtractor(feature_size=40), letters, decoder_type="ctc")
    config = t.ParakeetCTCConfig(vocab_size=len(letters), pad_token_id=1, encoder_config=CONFORMER)
    return processor, t.ParakeetForCTC(config)


def omniasr_ctc(t: Any, texts: list[str]) -> tuple[Any, Any]:
    letters = _ends(texts)
    processor = t.OmniASRCTCProcessor(t.OmniASRFeatureExtractor(), letters)
    config = t.OmniASRCTCConfig(vocab_size=len(letters), audio_config=WAVES, ctc_zero_infinity=True)
    return processor, t.OmniASRForCTC(config)


def omniasr_llm(t: Any, texts: list[str]) -> tuple[Any, Any]:
    special = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    letters = tokenizer(texts, [*special.values(), "<extra_id_1>"], **special)
    processor = t.OmniASRProcessor(t.OmniASRFeatureExtractor(), letters, chat_template=OMNI)
    llama = {**SIZES, "model_type": "llama", "vocab_size": len(letters), "num_key_value_heads": 2}
    config = t.OmniASRConfig(audio_config=WAVES, text_config=llama, audio_token_id=4)
    return processor, t.OmniASRForConditionalGeneration(config)


def qwen2_audio(t: Any, texts: list[str]) -> tuple[Any, Any]:
    marks = ["<unk>", "<pad>", "<|im_end|>", "<|im_start|>", "<|AUDIO|>", "<|audio_bos|>", "<|audio_eos|>"]
    letters = tokenizer(texts, marks, unk_token="<unk>", pad_token="<pad>", eos_token="<|im_end|>")
    processor = t.Qwen2AudioProcessor(t.WhisperFeatureExtractor(feature_size=40), letters)
    encoder = {
        "model_type": "qwen2_audio_encoder", "num_mel_bins": 40, "d_model": 32, "encoder_layers": 2,
        "encoder_attention_heads": 2, "encoder_ffn_dim": 64,
    }  # fmt: skip
    text = {**SIZES, "model_type": "qwen2", "vocab_size": len(letters), "num_key_value_heads": 2}
    config = t.Qwen2AudioConfig(audio_config=encoder, text_config=text, audio_token_index=4)
    return processor, t.Qwen2AudioForConditionalGeneration(config)


def speecht5(t: Any, texts: list[str]) -> tuple[Any, Any]:
    letters = _ends(texts)
    processor = t.SpeechT5Processor(t.SpeechT5FeatureExtractor(), letters)
    layers = {f"{part}_{name}": n for part in ("encoder", "decoder")
              for name, n in (("layers", 2), ("attention_heads", 2), ("ffn_dim", 64), ("layerdrop", 0.0))}  # fmt: skip
    config = t.SpeechT5Config(
        vocab_size=len(letters), hidden_size=32, conv_dim=(16,) * 7, num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=4, mask_time_prob=0.0, **layers,
    )  # fmt: skip
    return processor, t.SpeechT5ForSpeechToText(config)


_MAKERS = canary, cohere, moonshine_streaming, parakeet_ctc, omniasr_ctc, omniasr_llm, qwen2_audio, speecht5
KINDS: dict[str, Callable[[Any, list[str]], tuple[Any, Any]]] = {make.__name__: make for make in _MAKERS}
