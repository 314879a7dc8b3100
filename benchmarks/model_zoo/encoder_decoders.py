"""Encoders with a decoder that writes the text token by token."""

from __future__ import annotations

from typing import Any

import torch
import transformers as t
from ctc import wave_config
from material import (
    BOS,
    EOS,
    PAD,
    RATE,
    Collate,
    Sizes,
    Subject,
    filterbank,
    mask,
    padded,
    row,
    tokenizer,
    tokens,
    wave,
    with_lora,
)
from transducers import fast_conformer

_KIND = "encoder-decoder"


def texts(padding: int = -100, before: tuple[int, ...] = ()) -> Any:
    """Texts that end with the end token; of the losses that this package's collators shift themselves."""
    return lambda clips: padded([tokens(clip, before, [EOS]) for clip in clips], padding)


def halves(sizes: Sizes) -> dict[str, Any]:
    """Sizes of an encoder and a decoder, with the names of BART."""
    both = {}
    for half in ("encoder", "decoder"):
        both |= {f"{half}_layers": sizes.layers, f"{half}_attention_heads": sizes.heads}
        both |= {f"{half}_ffn_dim": sizes.feed_forward}
    return both | {"d_model": sizes.width, "pad_token_id": PAD, "bos_token_id": BOS, "eos_token_id": EOS}


def whisper_config(sizes: Sizes, **more: Any) -> Any:
    """Whisper over 30 s, as its extractor pads clips."""
    own = {"vocab_size": sizes.words, "num_mel_bins": 80, "max_target_positions": 448, "dropout": 0.0}
    asked = {"decoder_start_token_id": BOS, "suppress_tokens": [], "begin_suppress_tokens": []}
    return t.WhisperConfig(**(halves(sizes) | own | asked | more))


def _whisper_collator(bins: int = 80) -> Collate:
    extractor = t.WhisperFeatureExtractor(feature_size=bins)

    def collate(clips: list[dict[str, Any]]) -> dict[str, Any]:
        """As transformers' guide: features padded to 30 s, labels to the longest, without the start token."""
        features = extractor([wave(clip) for clip in clips], sampling_rate=RATE, return_tensors="pt")
        return {"input_features": features["input_features"], "labels": texts()(clips)}

    return collate


def _whisper(sizes: Sizes, **more: Any) -> Subject:
    model = t.WhisperForConditionalGeneration(whisper_config(sizes, **more))
    processor = t.WhisperProcessor(t.WhisperFeatureExtractor(feature_size=80), tokenizer())
    return Subject(model, _whisper_collator(), processor)


row("Whisper", _KIND)(_whisper)


@row("Whisper large-v3-turbo's shape", _KIND)
def _(sizes: Sizes) -> Subject:
    model = t.WhisperForConditionalGeneration(
        whisper_config(sizes, num_mel_bins=128, encoder_layers=2 * sizes.layers, decoder_layers=1)
    )
    return Subject(model, _whisper_collator(128))


@row("distil-whisper's shape, encoder frozen", _KIND)
def _(sizes: Sizes) -> Subject:
    whole = _whisper(sizes, decoder_layers=2)
    whole.model.freeze_encoder()
    return whole


@row("Whisper, LoRA", _KIND)
def _(sizes: Sizes) -> Subject:
    whole = _whisper(sizes)
    return Subject(with_lora(whole.model, r".*\.(q_proj|v_proj)"), whole.collate)


@row("Whisper, bf16", _KIND, precision="bf16", gpu="A100-40GB")
def _(sizes: Sizes) -> Subject:
    return _whisper(sizes)


@row("Speech2Text", _KIND)
def _(sizes: Sizes) -> Subject:
    config = t.Speech2TextConfig(
        **halves(sizes),
        vocab_size=sizes.words,
        conv_channels=sizes.feed_forward,
        dropout=0.0,
        decoder_start_token_id=EOS,
    )

    def collate(clips: list[dict[str, Any]]) -> dict[str, Any]:
        frames = [filterbank(clip, 80) for clip in clips]
        return {"input_features": padded(frames), "attention_mask": mask(frames), "labels": texts()(clips)}

    return Subject(t.Speech2TextForConditionalGeneration(config), collate)


def _mel_80_or_128(bins: int, prompt: tuple[int, ...]) -> Collate:
    """A prompt of language and task tokens before the text: the decoder's input and labels are made by hand."""

    def collate(clips: list[dict[str, Any]]) -> dict[str, Any]:
        frames = [filterbank(clip, bins) for clip in clips]
        whole = [tokens(clip, prompt, [EOS]) for clip in clips]
        labels = [one[1:].clone() for one in whole]
        for one in labels:
            one[: len(prompt) - 1] = -100
        return {
            "input_features": padded(frames),
            "attention_mask": mask(frames, torch.bool),
            "decoder_input_ids": padded([one[:-1] for one in whole], PAD),
            "decoder_attention_mask": mask([one[:-1] for one in whole]),
            "labels": padded(labels, -100),
        }

    return collate


def _decoder(sizes: Sizes) -> dict[str, Any]:
    return {
        "vocab_size": sizes.words,
        "hidden_size": sizes.width,
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "num_key_value_heads": sizes.heads,
        "intermediate_size": sizes.feed_forward,
        "head_dim": sizes.width // sizes.heads,
        "pad_token_id": PAD,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
    }


_PROMPT = (260, 261, 262, 263, 264)


@row("Canary", _KIND)
def _(sizes: Sizes) -> Subject:
    config = t.CanaryConfig(
        encoder_config=fast_conformer(sizes, num_mel_bins=128, scale_input=False), decoder_config=_decoder(sizes),
        vocab_size=sizes.words, pad_token_id=PAD, bos_token_id=BOS, eos_token_id=EOS, decoder_start_token_id=_PROMPT[0],
    )  # fmt: skip
    return Subject(t.CanaryForConditionalGeneration(config), _mel_80_or_128(128, _PROMPT))


@row("Cohere ASR", _KIND)
def _(sizes: Sizes) -> Subject:
    config = t.CohereAsrConfig(
        **_decoder(sizes), encoder_config=fast_conformer(sizes, num_mel_bins=128), decoder_start_token_id=_PROMPT[0]
    )
    return Subject(t.CohereAsrForConditionalGeneration(config), _mel_80_or_128(128, _PROMPT))


def _wave_collator(multiple: int = 1, normalized: bool = False) -> Collate:
    extractor = t.Wav2Vec2FeatureExtractor(do_normalize=normalized, return_attention_mask=True)

    def collate(clips: list[dict[str, Any]]) -> dict[str, Any]:
        waves = [wave(clip) for clip in clips]
        padding = {"padding": True, "pad_to_multiple_of": multiple if multiple > 1 else None}
        return dict(extractor(waves, sampling_rate=RATE, return_tensors="pt", **padding)) | {"labels": texts()(clips)}

    return collate


@row("Moonshine", _KIND)
def _(sizes: Sizes) -> Subject:
    config = t.MoonshineConfig(
        vocab_size=sizes.words, hidden_size=sizes.width, intermediate_size=sizes.feed_forward,
        encoder_num_hidden_layers=sizes.layers, decoder_num_hidden_layers=sizes.layers,
        encoder_num_attention_heads=sizes.heads, decoder_num_attention_heads=sizes.heads,
        pad_token_id=PAD, bos_token_id=BOS, eos_token_id=EOS, decoder_start_token_id=BOS,
    )  # fmt: skip
    return Subject(t.MoonshineForConditionalGeneration(config), _wave_collator())


@row("Moonshine streaming", _KIND)
def _(sizes: Sizes) -> Subject:
    inside = {
        "hidden_size": sizes.width,
        "intermediate_size": sizes.feed_forward,
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "num_key_value_heads": sizes.heads,
        "sliding_windows": [[16, 4]] * sizes.layers,
    }
    config = t.MoonshineStreamingConfig(encoder_config=inside, **_decoder(sizes), decoder_start_token_id=BOS)
    return Subject(t.MoonshineStreamingForConditionalGeneration(config), _wave_collator(multiple=80))


def _speecht5(sizes: Sizes, **more: Any) -> Any:
    quiet = {"hidden_dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0, "positional_dropout": 0.0}
    steady = {"encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0, "feat_proj_dropout": 0.0, "apply_spec_augment": False}
    shape = {name: value for name, value in halves(sizes).items() if name != "d_model"}
    convolutions = {
        "conv_dim": (sizes.channels,) * 7,
        "num_conv_pos_embeddings": 16,
        "num_conv_pos_embedding_groups": 4,
    }
    given = shape | quiet | steady | convolutions | more
    return t.SpeechT5Config(hidden_size=sizes.width, decoder_start_token_id=BOS, max_speech_positions=4000, **given)


@row("SpeechT5, speech to text", _KIND)
def _(sizes: Sizes) -> Subject:
    return Subject(
        t.SpeechT5ForSpeechToText(_speecht5(sizes, vocab_size=sizes.labels)), _wave_collator(normalized=True)
    )


@row("SpeechT5, text to speech", "TTS")
def _(sizes: Sizes) -> Subject:
    config = _speecht5(
        sizes, vocab_size=sizes.labels, speech_decoder_prenet_dropout=0.0, speech_decoder_postnet_dropout=0.0,
        speech_decoder_prenet_units=sizes.channels, speech_decoder_postnet_units=sizes.channels,
        speaker_embedding_dim=32,
    )  # fmt: skip

    def collate(clips: list[dict[str, Any]]) -> dict[str, Any]:
        """As transformers' guide: spectra in pairs of frames, -100 where there are none, a vector for the speaker."""
        written = [tokens(clip) for clip in clips]
        spectra = [filterbank(clip, 80) for clip in clips]
        spectra = [one[: len(one) // 2 * 2] for one in spectra]
        return {
            "input_ids": padded(written, PAD),
            "attention_mask": mask(written),
            "labels": padded(spectra, -100.0),
            "speaker_embeddings": torch.stack([torch.linspace(-1, 1, 32) for _ in clips]),
        }

    return Subject(t.SpeechT5ForTextToSpeech(config), collate)


def _seamless(sizes: Sizes, version: str) -> Any:
    speech = {
        "hidden_size": sizes.width,
        "speech_encoder_layers": sizes.layers,
        "speech_encoder_attention_heads": sizes.heads,
        "speech_encoder_intermediate_size": sizes.feed_forward,
        "speech_encoder_layerdrop": 0.0,
        "speech_encoder_dropout": 0.0,
        "adaptor_dropout": 0.0,
    }
    text = {name: value for name, value in halves(sizes).items() if name != "d_model"}
    quiet = {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0, "encoder_layerdrop": 0.0}
    given = speech | text | quiet | {"decoder_layerdrop": 0.0, "decoder_start_token_id": EOS}
    config = getattr(t, f"SeamlessM4T{version}Config")(vocab_size=sizes.words, **given)
    return getattr(t, f"SeamlessM4T{version}ForSpeechToText")(config)


def _seamless_collator() -> Collate:
    extractor = t.SeamlessM4TFeatureExtractor()

    def collate(clips: list[dict[str, Any]]) -> dict[str, Any]:
        batch = extractor([wave(clip) for clip in clips], sampling_rate=RATE, return_tensors="pt")
        return dict(batch) | {"labels": texts(before=(270,))(clips)}

    return collate


@row("SeamlessM4T, speech to text", _KIND)
def _(sizes: Sizes) -> Subject:
    return Subject(_seamless(sizes, ""), _seamless_collator())


@row("SeamlessM4T v2, speech to text", _KIND)
def _(sizes: Sizes) -> Subject:
    return Subject(_seamless(sizes, "v2"), _seamless_collator())


@row("wav2vec2 with BART's decoder", _KIND)
def _(sizes: Sizes) -> Subject:
    heard = wave_config("Wav2Vec2Config", sizes)
    written = t.BartConfig(**halves(sizes), vocab_size=sizes.words, dropout=0.0, max_position_embeddings=512)
    model = t.SpeechEncoderDecoderModel(t.SpeechEncoderDecoderConfig.from_encoder_decoder_configs(heard, written))
    model.config.decoder_start_token_id, model.config.pad_token_id = BOS, PAD
    return Subject(model, _wave_collator(normalized=True))
