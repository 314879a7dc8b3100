"""CTC models: wave or filterbank in, one label or blank a frame."""

from __future__ import annotations

from typing import Any

import torch
import transformers as t
from material import (
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

_KIND = "CTC"
# Nothing is drawn at random: a prediction is of the step that drops nothing, and equal runs are compared.
_STEADY = {
    "layerdrop": 0.0,
    "apply_spec_augment": False,
    "mask_time_prob": 0.0,
    "hidden_dropout": 0.0,
    "attention_dropout": 0.0,
    "activation_dropout": 0.0,
    "feat_proj_dropout": 0.0,
    "final_dropout": 0.0,
}


def wave_config(kind: str, sizes: Sizes, **more: Any) -> Any:
    """A config of the wav2vec2 family with these sizes."""
    return getattr(t, kind)(
        **_STEADY,
        **{
            "hidden_size": sizes.width,
            "num_hidden_layers": sizes.layers,
            "num_attention_heads": sizes.heads,
            "intermediate_size": sizes.feed_forward,
            "conv_dim": (sizes.channels,) * 7,
            "num_conv_pos_embeddings": 16,
            "num_conv_pos_embedding_groups": 4,
            "vocab_size": sizes.labels,
            "pad_token_id": PAD,
            "ctc_loss_reduction": "mean",
            "ctc_zero_infinity": True,
            "feat_extract_norm": "layer",
            "do_stable_layer_norm": True,
            "conv_bias": True,
            **more,
        },
    )


def wave_extractor(masked: bool = True) -> Any:
    """What ``from_pretrained`` loads beside a wav2vec2 checkpoint."""
    return t.Wav2Vec2FeatureExtractor(
        feature_size=1, sampling_rate=RATE, padding_value=0.0, do_normalize=True, return_attention_mask=masked
    )


def wave_collator(labels: Any, masked: bool = True, extractor: Any = None) -> Collate:
    """Clips padded by the feature extractor, beside what ``labels`` makes of their rows."""
    extractor = extractor or wave_extractor(masked)

    def collate(clips: list[dict[str, Any]]) -> dict[str, Any]:
        waves = [wave(clip) for clip in clips]
        batch = dict(extractor(waves, sampling_rate=RATE, padding=True, return_tensors="pt"))
        return batch | {"labels": labels(clips)}

    return collate


def ignored_labels(clips: list[dict[str, Any]]) -> torch.Tensor:
    """Labels of each text, -100 behind the shorter ones."""
    return padded([tokens(clip) for clip in clips], -100)


def feature_collator(bins: int, padding: int = -100, stacked: int = 1, dtype: torch.dtype = torch.bool) -> Collate:
    """Filterbanks with a mask, and labels padded with ``padding``."""

    def collate(clips: list[dict[str, Any]]) -> dict[str, Any]:
        frames = [filterbank(clip, bins, stacked) for clip in clips]
        labels = padded([tokens(clip) for clip in clips], padding)
        return {"input_features": padded(frames), "attention_mask": mask(frames, dtype), "labels": labels}

    return collate


def _of_wav2vec2(name: str, prefix: str, masked: bool = True, **more: Any) -> None:
    def build(sizes: Sizes) -> Subject:
        model = getattr(t, f"{prefix}ForCTC")(wave_config(f"{prefix}Config", sizes, **more))
        processor = t.Wav2Vec2Processor(wave_extractor(masked), tokenizer())
        return Subject(model, wave_collator(ignored_labels, masked), processor)

    row(name, _KIND)(build)


_of_wav2vec2("wav2vec2, layer norm", "Wav2Vec2")
_of_wav2vec2("wav2vec2, group norm", "Wav2Vec2", False, feat_extract_norm="group", do_stable_layer_norm=False)
_of_wav2vec2("HuBERT", "Hubert")
_of_wav2vec2("WavLM", "WavLM")
_of_wav2vec2("UniSpeech", "UniSpeech", num_ctc_classes=320)
_of_wav2vec2("UniSpeech-SAT", "UniSpeechSat")
_of_wav2vec2("data2vec-audio", "Data2VecAudio", num_conv_pos_embeddings=3, conv_pos_kernel_size=7)
_of_wav2vec2(
    "wav2vec2-conformer, relative", "Wav2Vec2Conformer", conformer_conv_dropout=0.0, position_embeddings_type="relative"
)
_of_wav2vec2(
    "wav2vec2-conformer, rotary", "Wav2Vec2Conformer", conformer_conv_dropout=0.0, position_embeddings_type="rotary"
)
_SQUEEZED = {"conv_stride": (5, 2, 2, 2, 2, 2, 2), "conv_kernel": (10, 3, 3, 3, 3, 2, 2), "squeeze_factor": 2}
_of_wav2vec2("SEW", "SEW", False, **_SQUEEZED)
_of_wav2vec2("SEW-D", "SEWD", False, **_SQUEEZED, max_position_embeddings=64, position_buckets=32)


@row("wav2vec2, feature encoder frozen", _KIND)
def _(sizes: Sizes) -> Subject:
    model = t.Wav2Vec2ForCTC(wave_config("Wav2Vec2Config", sizes))
    model.freeze_feature_encoder()
    return Subject(model, wave_collator(ignored_labels))


@row("wav2vec2, LoRA", _KIND)
def _(sizes: Sizes) -> Subject:
    model = with_lora(t.Wav2Vec2ForCTC(wave_config("Wav2Vec2Config", sizes)), r".*\.(q_proj|v_proj)")
    return Subject(model, wave_collator(ignored_labels))


@row("MMS, adapters trained alone", _KIND)
def _(sizes: Sizes) -> Subject:
    model = t.Wav2Vec2ForCTC(wave_config("Wav2Vec2Config", sizes, adapter_attn_dim=16))
    model.freeze_base_model()
    for weight in model._get_adapters().values():
        weight.requires_grad = True
    return Subject(model, wave_collator(ignored_labels))


def _w2v_bert(adapter: bool) -> Any:
    def build(sizes: Sizes) -> Subject:
        config = t.Wav2Vec2BertConfig(
            **{name: value for name, value in _STEADY.items() if name != "mask_time_prob"},
            vocab_size=sizes.labels,
            hidden_size=sizes.width,
            output_hidden_size=sizes.width,
            num_hidden_layers=sizes.layers,
            num_attention_heads=sizes.heads,
            intermediate_size=sizes.feed_forward,
            conformer_conv_dropout=0.0,
            pad_token_id=PAD,
            ctc_loss_reduction="mean",
            add_adapter=adapter,
        )
        extractor = t.SeamlessM4TFeatureExtractor(padding_value=1.0)
        processor = t.Wav2Vec2BertProcessor(extractor, tokenizer())

        def collate(clips: list[dict[str, Any]]) -> dict[str, Any]:
            batch = extractor([wave(clip) for clip in clips], sampling_rate=RATE, return_tensors="pt")
            return dict(batch) | {"labels": ignored_labels(clips)}

        return Subject(t.Wav2Vec2BertForCTC(config), collate, processor)

    return build


row("w2v-BERT 2.0", _KIND)(_w2v_bert(False))
row("w2v-BERT 2.0, adapter layer", _KIND)(_w2v_bert(True))


def _parakeet(sizes: Sizes) -> Any:
    return t.ParakeetForCTC(
        t.ParakeetCTCConfig(
            vocab_size=sizes.labels + 1, pad_token_id=sizes.labels, encoder_config=fast_conformer(sizes)
        )
    )


@row("Parakeet CTC", _KIND)
def _(sizes: Sizes) -> Subject:
    return Subject(_parakeet(sizes), feature_collator(80, sizes.labels))


@row("Parakeet CTC, encoder frozen", _KIND)
def _(sizes: Sizes) -> Subject:
    model = _parakeet(sizes)
    model.encoder.requires_grad_(False)
    return Subject(model, feature_collator(80, sizes.labels))


@row("LASR CTC", _KIND)
def _(sizes: Sizes) -> Subject:
    config = t.LasrCTCConfig(vocab_size=sizes.labels, pad_token_id=PAD, encoder_config=fast_conformer(sizes))
    return Subject(t.LasrForCTC(config), feature_collator(128, PAD))


@row("Granite Speech 5 CTC", _KIND)
def _(sizes: Sizes) -> Subject:
    inside = {
        "hidden_size": sizes.width,
        "num_hidden_layers": 4,
        "num_attention_heads": sizes.heads,
        "intermediate_size": sizes.feed_forward,
        "context_size": 32,
        "max_position_embeddings": 64,
        "vocab_size": sizes.labels,
    }
    config = t.GraniteSpeech5CTCConfig(vocab_size=sizes.labels, pad_token_id=PAD, encoder_config=inside)
    return Subject(t.GraniteSpeech5ForCTC(config), feature_collator(80, PAD, stacked=4))


def omni_encoder(sizes: Sizes) -> dict[str, Any]:
    """The audio encoder of Omnilingual ASR."""
    return {
        "hidden_size": sizes.width,
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "intermediate_size": sizes.feed_forward,
        "conv_dim": (sizes.channels,) * 7,
        "num_conv_pos_embeddings": 16,
        "num_conv_pos_embedding_groups": 4,
        "hidden_dropout": 0.0,
        "activation_dropout": 0.0,
        "layerdrop": 0.0,
    }


def normalized_waves(clips: list[dict[str, Any]]) -> list[torch.Tensor]:
    """Waves of zero mean and unit variance."""
    waves = [torch.from_numpy(wave(clip)) for clip in clips]
    return [(one - one.mean()) / (one.std() + 1e-7) for one in waves]


@row("omniASR CTC", _KIND)
def _(sizes: Sizes) -> Subject:
    config = t.OmniASRCTCConfig(vocab_size=sizes.labels, audio_config=omni_encoder(sizes), ctc_zero_infinity=True)

    def collate(clips: list[dict[str, Any]]) -> dict[str, Any]:
        waves = normalized_waves(clips)
        labels = padded([tokens(clip, after=[EOS]) for clip in clips], -100)
        return {"input_values": padded(waves)[:, None], "padding_mask": mask(waves, torch.int32), "labels": labels}

    return Subject(t.OmniASRForCTC(config), collate)
