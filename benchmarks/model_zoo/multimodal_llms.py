"""Audio language models whose other modalities, codecs or classes set them apart."""

from __future__ import annotations

from typing import Any

import torch
import transformers as t
from audio_llms import by_hand, chat, encoder, text_model, whisper_encoder
from ctc import normalized_waves, omni_encoder
from material import EOS, PAD, RATE, Sizes, Subject, filterbank, mask, padded, resampled, row, tokenizer, tokens, wave

_KIND = "audio LLM"
_SPEECH = 300  # the placeholder of models whose batches are made by hand


def _halved(length: int, times: int) -> int:
    """After convolutions of stride 2."""
    for _ in range(times):
        length = (length - 1) // 2 + 1
    return length


@row("Fun-ASR nano", _KIND)
def _(sizes: Sizes) -> Subject:
    quiet = {"hidden_dropout": 0.0, "attention_dropout": 0.0}
    config = t.FunAsrNanoConfig(
        audio_config=encoder(sizes, num_timestamp_prediction_layers=1, **quiet),
        adaptor_config=encoder(sizes, projector_hidden_size=sizes.feed_forward)
        | {"intermediate_size": sizes.width // 4},
        text_config=text_model(sizes, tie_word_embeddings=True),
        audio_token_id=_SPEECH,
    )

    def audio(clips: list[dict[str, Any]]) -> tuple[dict[str, Any], list[int]]:
        """Seven frames side by side every six, as its extractor stacks them by torchaudio."""
        stacked = []
        for clip in clips:
            frames = filterbank(clip, 80)
            count = -(-len(frames) // 6)
            whole = torch.cat([frames[:1].expand(3, -1), frames, frames[-1:].expand(12, -1)])
            stacked.append(whole.unfold(0, 7, 6)[:count].transpose(1, 2).reshape(count, -1))
        inputs = {"input_features": padded(stacked), "input_features_mask": mask(stacked, torch.int32)}
        return inputs, [len(one) for one in stacked]

    return Subject(t.FunAsrNanoForConditionalGeneration(config), by_hand(audio, _SPEECH))


@row("MOSS-Transcribe-Diarize", _KIND)
def _(sizes: Sizes) -> Subject:
    letters = tokenizer("<|audio_pad|>", "<|audio_start|>", "<|audio_end|>")
    config = t.MossTranscribeDiarizeConfig(
        audio_config=encoder(sizes, num_mel_bins=80),
        text_config=text_model(sizes, tie_word_embeddings=True),
        audio_token_id=letters.convert_tokens_to_ids("<|audio_pad|>"),
    )
    processor = t.MossTranscribeDiarizeProcessor(t.MossTranscribeDiarizeFeatureExtractor(), letters)
    collate = chat(processor, "user\n<|audio_start|><|audio_pad|><|audio_end|>assistant\n", padding=True)
    return Subject(t.MossTranscribeDiarizeForConditionalGeneration(config), collate, processor)


@row("VibeVoice-ASR", _KIND)
def _(sizes: Sizes) -> Subject:
    # Without the noise on its latents, as others without dropout: a split step draws other noise.
    inside = {"num_filters": sizes.channels // 4, "depths": [1] * 7, "vae_std": 0.0}
    config = t.VibeVoiceAsrConfig(
        acoustic_tokenizer_encoder_config={**inside, "model_type": "vibevoice_acoustic_tokenizer_encoder"},
        semantic_tokenizer_encoder_config={
            **inside, "model_type": "vibevoice_acoustic_tokenizer_encoder", "hidden_size": 128,
        },
        text_config=text_model(sizes, model_type="qwen2"),
        audio_token_id=_SPEECH,
    )  # fmt: skip

    def audio(clips: list[dict[str, Any]]) -> tuple[dict[str, Any], list[int]]:
        """24 kHz, and an embedding for every 3 200 samples."""
        waves = [resampled(one) for one in normalized_waves(clips)]
        values = padded(waves, multiple=3200)[:, None]
        inputs = {"input_values": values, "padding_mask": mask(waves, torch.bool, multiple=3200)}
        return inputs, [-(-len(one) // 3200) for one in waves]

    return Subject(t.VibeVoiceAsrForConditionalGeneration(config), by_hand(audio, _SPEECH))


_VISION = {
    "depth": 1, "hidden_size": 32, "intermediate_size": 32, "num_heads": 2, "fullatt_block_indexes": [0],
}  # fmt: skip


def _padded_to_30s(bins: int, count: Any) -> Any:
    """Features of 30 s with a mask, and as many placeholders as ``count`` tells of the frames of a clip."""
    extractor = t.WhisperFeatureExtractor(feature_size=bins)

    def audio(clips: list[dict[str, Any]]) -> tuple[dict[str, Any], list[int]]:
        made = extractor(
            [wave(clip) for clip in clips], sampling_rate=RATE, return_attention_mask=True, return_tensors="pt"
        )
        inputs = {"input_features": made["input_features"], "feature_attention_mask": made["attention_mask"]}
        return inputs, [int(count(int(frames))) for frames in made["attention_mask"].sum(-1)]

    return audio


@row("Qwen2.5-Omni thinker", _KIND)
def _(sizes: Sizes) -> Subject:
    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [sizes.width // sizes.heads // 2 - 4, 2, 2]}
    text = text_model(sizes, rope_parameters=rope)
    text.pop("head_dim")
    config = t.Qwen2_5OmniThinkerConfig(
        audio_config=whisper_encoder(sizes, num_mel_bins=128, output_dim=sizes.width),
        vision_config={**_VISION, "out_hidden_size": sizes.width},
        text_config=text,
        audio_token_index=_SPEECH,
        image_token_index=301,
        video_token_index=302,
        audio_start_token_id=303,
        audio_end_token_id=304,
        vision_start_token_id=305,
    )
    audio = _padded_to_30s(128, lambda frames: (_halved(frames, 1) - 2) // 2 + 1)
    return Subject(t.Qwen2_5OmniThinkerForConditionalGeneration(config), by_hand(audio, _SPEECH))


@row("Qwen3-Omni thinker, experts", _KIND)
def _(sizes: Sizes) -> Subject:
    from transformers.models.qwen3_omni_moe import (
        configuration_qwen3_omni_moe as configurations,
        modeling_qwen3_omni_moe as modeling,
    )

    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [sizes.width // sizes.heads // 2 - 4, 2, 2]}
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": sizes.feed_forward // 2}
    config = configurations.Qwen3OmniMoeThinkerConfig(
        audio_config=whisper_encoder(
            sizes, num_mel_bins=128, output_dim=sizes.width, downsample_hidden_size=sizes.channels
        ),
        vision_config={"depth": 1, "hidden_size": 32, "intermediate_size": 32, "num_heads": 2,
                       "out_hidden_size": sizes.width, "deepstack_visual_indexes": [0]},
        text_config=text_model(sizes, rope_parameters=rope, **experts),
        audio_token_id=_SPEECH,
        image_token_id=301,
        video_token_id=302,
        audio_start_token_id=303,
        vision_start_token_id=305,
    )  # fmt: skip

    def count(frames: int) -> int:
        return _halved(frames % 100, 3) * (frames % 100 > 0) + frames // 100 * 13

    collate = by_hand(_padded_to_30s(128, count), _SPEECH)
    return Subject(modeling.Qwen3OmniMoeThinkerForConditionalGeneration(config), collate)


@row("Phi-4 multimodal", _KIND)
def _(sizes: Sizes) -> Subject:
    config = t.Phi4MultimodalConfig(
        audio_config={
            "hidden_size": sizes.width, "intermediate_size": sizes.feed_forward, "num_blocks": sizes.layers,
            "num_attention_heads": sizes.heads, "ext_pw_out_channel": sizes.width, "audio_token_id": _SPEECH,
            "depthwise_separable_out_channel": sizes.width, "nemo_conv_channels": sizes.channels,
        },
        vision_config={"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
                       "image_token_id": 301, "image_size": 28, "crop_size": 28},
        **{name: value for name, value in text_model(sizes).items() if name != "head_dim"},
    )  # fmt: skip

    def audio(clips: list[dict[str, Any]]) -> tuple[dict[str, Any], list[int]]:
        frames = [filterbank(clip, 80) for clip in clips]
        sizes_of = torch.tensor([-(-len(one) // 8) for one in frames])
        inputs = {
            "audio_input_features": padded(frames),
            "audio_embed_sizes": sizes_of,
            "audio_attention_mask": mask(frames, torch.bool),
        }
        return inputs, sizes_of.tolist()

    return Subject(t.Phi4MultimodalForCausalLM(config), by_hand(audio, _SPEECH))


@row("Gemma 3n", _KIND)
def _(sizes: Sizes) -> Subject:
    text = text_model(
        sizes, hidden_size_per_layer_input=16, num_kv_shared_layers=0, laurel_rank=8, layer_types=_turns(sizes.layers),
        vocab_size_per_layer_input=sizes.words, sliding_window=128, activation_sparsity_pattern=[0.0] * sizes.layers,
    )  # fmt: skip
    heard = {
        "hidden_size": sizes.width, "conf_num_attention_heads": sizes.heads, "conf_num_hidden_layers": sizes.layers,
        "vocab_offset": sizes.words - 16, "vocab_size": 16,
        "sscp_conv_channel_size": (sizes.channels, sizes.channels // 4),
    }  # fmt: skip
    config = t.Gemma3nConfig(
        text_config=text,
        audio_config=heard,
        vision_config=None,
        audio_token_id=_SPEECH,
        audio_soft_tokens_per_image=188,
    )
    # Its own tower for images needs timm; a small one stands for it, and sees none.
    seen = t.SiglipVisionConfig(hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2)
    seen.vocab_size, seen.vocab_offset, seen.rms_norm_eps = 16, sizes.words - 32, 1e-6
    vars(config)["vision_config"] = seen

    def audio(clips: list[dict[str, Any]]) -> tuple[dict[str, Any], list[int]]:
        """188 placeholders a clip, whatever its length: the model fills what the audio leaves."""
        frames = [filterbank(clip, 128) for clip in clips]
        return {"input_features": padded(frames), "input_features_mask": mask(frames, torch.bool)}, [188] * len(clips)

    return Subject(t.Gemma3nForConditionalGeneration(config), by_hand(audio, _SPEECH))


def _turns(layers: int) -> list[str]:
    return ["full_attention" if number % 2 else "sliding_attention" for number in range(layers)]


# Its mask holds a number that fp16 lacks. It is trained for one step: in three, a start that is moved by 10⁻⁷ ends a
# tenth of its way from where it would have ended.
@row("Gemma 4", _KIND, precision="bf16", gpu="A100-40GB", steps=1)
def _(sizes: Sizes) -> Subject:
    text = text_model(sizes, hidden_size_per_layer_input=16, num_kv_shared_layers=0, layer_types=_turns(sizes.layers),
                      vocab_size_per_layer_input=sizes.words, sliding_window=128)  # fmt: skip
    heard = {
        "hidden_size": sizes.width, "num_attention_heads": sizes.heads, "num_hidden_layers": sizes.layers,
        "output_proj_dims": sizes.width,
    }  # fmt: skip
    config = t.Gemma4Config(text_config=text, audio_config=heard, vision_config=None, audio_token_id=_SPEECH)

    def audio(clips: list[dict[str, Any]]) -> tuple[dict[str, Any], list[int]]:
        frames = [filterbank(clip, 128) for clip in clips]
        inputs = {"input_features": padded(frames), "input_features_mask": mask(frames, torch.bool)}
        return inputs, [_halved(len(one), 2) for one in frames]

    return Subject(t.Gemma4ForConditionalGeneration(config), by_hand(audio, _SPEECH))


@row("Kyutai STT", _KIND)
def _(sizes: Sizes) -> Subject:
    codebooks, size = 8, 65
    config = t.KyutaiSpeechToTextConfig(
        vocab_size=sizes.words, codebook_vocab_size=size, num_codebooks=codebooks, hidden_size=sizes.width,
        num_hidden_layers=sizes.layers, num_attention_heads=sizes.heads, ffn_dim=sizes.feed_forward,
        audio_bos_token_id=size - 1, audio_pad_token_id=sizes.words + codebooks * size, pad_token_id=3, bos_token_id=4,
        codec_config={"num_filters": 4, "hidden_size": 32, "num_hidden_layers": 1, "intermediate_size": 32,
                      "num_attention_heads": 2, "num_key_value_heads": 2, "codebook_size": 64, "codebook_dim": 16,
                      "vector_quantization_hidden_dimension": 16, "num_quantizers": codebooks, "upsample_groups": 32},
    )  # fmt: skip

    def collate(clips: list[dict[str, Any]]) -> dict[str, Any]:
        """A text token and eight codes a frame of 80 ms; text is spread over the frames as it is spoken."""
        made = []
        for clip in clips:
            written = tokens(clip)
            frames = max(2, round(len(wave(clip)) / RATE * 12.5), len(written) // 4)
            ids = torch.full((frames, codebooks + 1), 3)
            ids[:, 0][torch.linspace(0, frames - 1, min(frames, len(written))).long()] = written[:frames]
            ids[:, 1:] = torch.arange(frames)[:, None] * 7 % 64
            made.append(ids)
        ids = padded(made, 3)
        valid = mask(made)
        return {"input_ids": ids, "attention_mask": valid, "labels": ids[..., 0].masked_fill(valid == 0, -100)}

    return Subject(t.KyutaiSpeechToTextForConditionalGeneration(config), collate)


@row("omniASR LLM", _KIND)
def _(sizes: Sizes) -> Subject:
    config = t.OmniASRConfig(
        audio_config=omni_encoder(sizes), text_config=text_model(sizes), audio_token_id=_SPEECH, pad_token_id=PAD,
        bos_token_id=257, eos_token_id=EOS,
    )  # fmt: skip

    def audio(clips: list[dict[str, Any]]) -> tuple[dict[str, Any], list[int]]:
        waves = normalized_waves(clips)
        counts = []
        for one in waves:
            length = len(one)
            for kernel, stride in zip((10, 3, 3, 3, 3, 2, 2), (5, 2, 2, 2, 2, 2, 2), strict=True):
                length = (length - kernel) // stride + 1
            counts.append(length)
        return {"input_values": padded(waves)[:, None], "padding_mask": mask(waves, torch.int32)}, counts

    return Subject(t.OmniASRForConditionalGeneration(config), by_hand(audio, _SPEECH))
