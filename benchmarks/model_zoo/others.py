"""Pre-training and speech synthesis with a loss."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import transformers as t
from audio_llms import text_model
from ctc import wave_config, wave_extractor
from material import BOS, EOS, PAD, RATE, Sizes, Subject, filterbank, mask, padded, resampled, row, tokens, wave

_PRETRAINING, _SPEAKING = "pre-training", "TTS"


@row("wav2vec2, pre-training", _PRETRAINING)
def _(sizes: Sizes) -> Subject:
    from transformers.models.wav2vec2 import modeling_wav2vec2 as modeling

    model = t.Wav2Vec2ForPreTraining(
        wave_config(
            "Wav2Vec2Config", sizes, num_codevectors_per_group=16, num_codevector_groups=2, codevector_dim=32,
            proj_codevector_dim=32, num_negatives=10, feat_quantizer_dropout=0.0,
        )
    )  # fmt: skip
    extractor = wave_extractor()

    def collate(clips: list[dict[str, Any]]) -> dict[str, Any]:
        """As transformers' example: which frames are hidden, and which others stand against each, is drawn here."""
        batch = dict(extractor([wave(clip) for clip in clips], sampling_rate=RATE, padding=True, return_tensors="pt"))
        frames = int(model._get_feat_extract_output_lengths(batch["input_values"].shape[1]))
        valid = model._get_feature_vector_attention_mask(frames, batch["attention_mask"], add_adapter=False)
        np.random.seed(len(clips) * 1009 + frames)
        hidden = modeling._compute_mask_indices((len(clips), frames), 0.65, 10, attention_mask=valid, min_masks=2)
        others = modeling._sample_negative_indices((len(clips), frames), 10, mask_time_indices=hidden)
        drawn = {"mask_time_indices": torch.tensor(hidden), "sampled_negative_indices": torch.tensor(others)}
        return batch | drawn

    return Subject(model, collate)


def _codes(clip: dict[str, Any], books: int, size: int, rate: float) -> torch.Tensor:
    """Codes of a codec, [frames, books]: their values say nothing about memory."""
    frames = max(2, round(len(wave(clip)) / RATE * rate))
    return (torch.arange(frames)[:, None] * 5 + torch.arange(books)) % size


@row("Dia", _SPEAKING)
def _(sizes: Sizes) -> Subject:
    books, size = 4, 64
    heads = {"num_attention_heads": sizes.heads, "num_key_value_heads": sizes.heads, "head_dim": 16}
    shape = {"hidden_size": sizes.width, "intermediate_size": sizes.feed_forward, "num_hidden_layers": sizes.layers}
    crossed = {"cross_num_attention_heads": sizes.heads, "cross_num_key_value_heads": sizes.heads, "cross_head_dim": 16,
               "cross_hidden_size": sizes.width}  # fmt: skip
    config = t.DiaConfig(
        encoder_config=heads | shape | {"vocab_size": sizes.labels},
        decoder_config=heads | shape | crossed | {"num_channels": books, "vocab_size": size + 4},
        delay_pattern=list(range(books)), pad_token_id=size + 1, eos_token_id=size, bos_token_id=size + 2,
    )  # fmt: skip
    model = t.DiaForConditionalGeneration(config)

    def collate(clips: list[dict[str, Any]]) -> dict[str, Any]:
        """Labels hold a row for each codebook of each clip, as the processor makes them."""
        written = [tokens(clip) for clip in clips]
        codes = [_codes(clip, books, size, 43.0) for clip in clips]
        ids = padded([torch.cat([code.new_full((1, books), size + 2), code]) for code in codes], size + 1)
        labels = padded(codes, -100, length=ids.shape[1])
        return {
            "input_ids": padded(written, 0),
            "attention_mask": mask(written),
            "decoder_input_ids": ids,
            "decoder_attention_mask": mask(codes, length=ids.shape[1]),
            "labels": labels.transpose(1, 2).reshape(-1, ids.shape[1]).contiguous(),
        }

    return Subject(model, collate)


@row("CSM", _SPEAKING)
def _(sizes: Sizes) -> Subject:
    books, size = 4, 64
    inside = text_model(sizes, vocab_size=size + 2)
    depth = {
        **inside,
        "num_codebooks": books,
        "backbone_hidden_size": sizes.width,
        "max_position_embeddings": books + 1,
    }
    config = t.CsmConfig(
        **(text_model(sizes, vocab_size=size + 2) | {"pad_token_id": PAD, "bos_token_id": BOS, "eos_token_id": EOS}),
        num_codebooks=books, text_vocab_size=sizes.words, depth_decoder_config=depth, codebook_pad_token_id=size,
        codebook_eos_token_id=size + 1, audio_token_id=300, audio_eos_token_id=301,
        codec_config={"num_filters": 4, "hidden_size": 32, "num_hidden_layers": 1, "intermediate_size": 32,
                      "num_attention_heads": 2, "num_key_value_heads": 2, "codebook_size": 64, "codebook_dim": 16,
                      "vector_quantization_hidden_dimension": 16, "num_quantizers": books, "upsample_groups": 32},
    )  # fmt: skip
    model = t.CsmForConditionalGeneration(config)
    model.codec_model.requires_grad_(False)

    def collate(clips: list[dict[str, Any]]) -> dict[str, Any]:
        """Text, a placeholder for each frame of the codec, and the waves that it encodes while it trains."""
        waves = [resampled(torch.from_numpy(wave(clip))) for clip in clips]
        counts = [-(-len(one) // 1920) for one in waves]
        whole = [tokens(clip, after=[300] * count + [301]) for clip, count in zip(clips, counts, strict=True)]
        ids = padded(whole, PAD)
        return {
            "input_ids": ids,
            "attention_mask": mask(whole),
            "input_values": padded(waves)[:, None],
            "input_values_cutoffs": torch.tensor([[len(one)] for one in waves]),
            "labels": ids.masked_fill((ids != 300) & (ids != 301), -100),
        }

    return Subject(model, collate)


@row("FastSpeech2 conformer", _SPEAKING)
def _(sizes: Sizes) -> Subject:
    half: dict[str, Any] = {}
    for name in ("encoder", "decoder"):
        half |= {f"{name}_layers": sizes.layers, f"{name}_num_attention_heads": sizes.heads}
        half |= {f"{name}_linear_units": sizes.feed_forward}
    quiet = {f"{half_}_{what}": 0.0 for half_ in ("encoder", "decoder")
             for what in ("dropout_rate", "positional_dropout_rate", "attention_dropout_rate")}  # fmt: skip
    config = t.FastSpeech2ConformerConfig(
        hidden_size=sizes.width, vocab_size=sizes.labels, num_mel_bins=80, speech_decoder_postnet_dropout=0.0,
        duration_predictor_dropout_rate=0.0, pitch_predictor_dropout=0.0, energy_predictor_dropout=0.0,
        pitch_embed_dropout=0.0, energy_embed_dropout=0.0, **half, **quiet,
    )  # fmt: skip

    def collate(clips: list[dict[str, Any]]) -> dict[str, Any]:
        """How many frames each letter lasts: together as many as the spectrum has."""
        written = [tokens(clip) for clip in clips]
        spectra, lasting = [], []
        for clip, text in zip(clips, written, strict=True):
            frames = filterbank(clip, 80)
            each = max(1, len(frames) // len(text))
            lasting.append(torch.full((len(text),), each))
            missing = max(0, each * len(text) - len(frames))
            spectra.append(torch.nn.functional.pad(frames, (0, 0, 0, missing))[: each * len(text)])
        pitch = [torch.linspace(0, 1, len(text))[:, None] for text in written]
        return {
            "input_ids": padded(written, 0),
            "attention_mask": mask(written),
            "spectrogram_labels": padded(spectra, -100.0),
            "duration_labels": padded(lasting, 0),
            "pitch_labels": padded(pitch),
            "energy_labels": padded(pitch),
        }

    return Subject(t.FastSpeech2ConformerModel(config), collate)


@row("MusicGen, decoder trained", _SPEAKING)
def _(sizes: Sizes) -> Subject:
    books, size = 4, 64
    written = t.T5Config(d_model=sizes.width, d_ff=sizes.feed_forward, num_layers=sizes.layers, num_heads=sizes.heads,
                         d_kv=sizes.width // sizes.heads, vocab_size=sizes.words, dropout_rate=0.0)  # fmt: skip
    codec = t.EncodecConfig(hidden_size=32, num_filters=4, codebook_size=size, codebook_dim=32, num_residual_layers=1)
    decoder = t.MusicgenDecoderConfig(
        vocab_size=size, hidden_size=sizes.width, num_hidden_layers=sizes.layers, num_attention_heads=sizes.heads,
        ffn_dim=sizes.feed_forward, num_codebooks=books, dropout=0.0, pad_token_id=size, bos_token_id=size,
    )  # fmt: skip
    config = t.MusicgenConfig(text_encoder=written.to_dict(), audio_encoder=codec.to_dict(), decoder=decoder.to_dict())
    config.pad_token_id = config.decoder_start_token_id = config.decoder.decoder_start_token_id = size
    model = t.MusicgenForConditionalGeneration(config)
    model.text_encoder.requires_grad_(False)
    model.audio_encoder.requires_grad_(False)

    def collate(clips: list[dict[str, Any]]) -> dict[str, Any]:
        described = [tokens(clip) for clip in clips]
        codes = padded([_codes(clip, books, size, 50.0) for clip in clips], -100)
        return {"input_ids": padded(described, 0), "attention_mask": mask(described), "labels": codes}

    return Subject(model, collate)
