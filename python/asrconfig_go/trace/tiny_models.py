"""The configs of two small models that need no network: what ``tiny-wav2vec2`` and ``tiny-whisper`` are.

Plain values, so that planning for them needs no transformers. Vocabularies are those of the bundled digits and of
bytes; a training has those of its own processor.
"""

from __future__ import annotations

from typing import Any

BLANK = 0  # token id of the CTC blank, which is also the padding token

TINY_WAV2VEC2: dict[str, Any] = {
    "model_type": "wav2vec2",
    "architectures": ["Wav2Vec2ForCTC"],
    "vocab_size": 18,
    "pad_token_id": BLANK,
    "hidden_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 384,
    "conv_dim": [32, 64, 128, 128],  # the first layers run at the highest rate, so width costs most there
    "conv_stride": [16, 5, 2, 2],  # 320 samples a frame, as in the published wav2vec2 models
    "conv_kernel": [32, 10, 4, 4],
    "conv_bias": True,
    "feat_extract_activation": "relu",  # the gradient of "gelu" alone would take a sixth of a CPU's step
    "num_conv_pos_embeddings": 32,
    "num_conv_pos_embedding_groups": 4,
    # Layer normalisation instead of group normalisation: a clip's result does not depend on its padding.
    "feat_extract_norm": "layer",
    "do_stable_layer_norm": True,
    # The clips are few, so masked frames keep the model from learning them by heart. The masks are short, because
    # a digit is only about 15 frames long.
    "mask_time_prob": 0.1,
    "mask_time_length": 3,
    **dict.fromkeys(("hidden_dropout", "attention_dropout", "activation_dropout", "feat_proj_dropout"), 0.0),
    **dict.fromkeys(("final_dropout", "layerdrop"), 0.0),
    "ctc_loss_reduction": "mean",  # the default, "sum", makes the gradient grow with the batch
    "ctc_zero_infinity": True,
}
TINY_WHISPER: dict[str, Any] = {
    "model_type": "whisper",
    "architectures": ["WhisperForConditionalGeneration"],
    "vocab_size": 261,  # bytes, and five marks
    "num_mel_bins": 40,
    "d_model": 96,
    **dict.fromkeys(("encoder_layers", "decoder_layers"), 2),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4),
    **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), 256),
    "max_source_positions": 250,  # 5 s
    "max_target_positions": 96,
    "suppress_tokens": None,
    "begin_suppress_tokens": None,
    **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"), 256),
    "decoder_start_token_id": 257,
}
TINY_MOONSHINE: dict[str, Any] = {
    "model_type": "moonshine",
    "architectures": ["MoonshineForConditionalGeneration"],
    "vocab_size": 320,
    "hidden_size": 96,
    "intermediate_size": 256,
    **dict.fromkeys(("encoder_num_hidden_layers", "decoder_num_hidden_layers"), 2),
    **dict.fromkeys(("encoder_num_attention_heads", "decoder_num_attention_heads"), 4),
    **dict.fromkeys(("encoder_num_key_value_heads", "decoder_num_key_value_heads"), 4),
    "max_position_embeddings": 96,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 2,
    "decoder_start_token_id": 1,
}
MEL_BINS = 40
TINY_PARAKEET_TDT: dict[str, Any] = {
    "model_type": "parakeet_tdt",
    "architectures": ["ParakeetForTDT"],
    "vocab_size": 320,
    "decoder_hidden_size": 96,
    "num_decoder_layers": 1,
    "max_symbols_per_step": 4,
    "pad_token_id": 1,
    "blank_token_id": 2,
    "encoder_config": {
        "model_type": "parakeet_encoder",
        "hidden_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 256,
        "subsampling_conv_channels": 32,
        "num_mel_bins": MEL_BINS,
        **dict.fromkeys(("dropout", "layerdrop", "activation_dropout", "attention_dropout"), 0.0),
    },
}
CHAT_TOKENS = ("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<asr_text>")
AUDIO_TOKENS = {
    "audio_token": "<|audio_pad|>",
    "audio_bos_token": "<|audio_start|>",
    "audio_eos_token": "<|audio_end|>",
}
CHAT_TEMPLATE = (
    "{% for turn in messages %}<|im_start|>{{ turn['role'] }} "
    "{% for part in turn['content'] %}"
    "{% if part['type'] == 'audio' %}<|audio_start|><|audio_pad|><|audio_end|>{% else %}{{ part['text'] }}{% endif %}"
    "{% endfor %}<|im_end|>{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant {% endif %}"
)
TINY_QWEN3_ASR: dict[str, Any] = {
    "model_type": "qwen3_asr",
    "architectures": ["Qwen3ASRForConditionalGeneration"],
    "audio_token_id": 4,
    "eos_token_id": 1,
    "pad_token_id": 2,
    "tie_word_embeddings": True,
    "audio_config": {
        "model_type": "qwen3_asr_encoder",
        "num_mel_bins": MEL_BINS,
        "d_model": 96,
        "encoder_layers": 2,
        "encoder_attention_heads": 4,
        "encoder_ffn_dim": 256,
        "downsample_hidden_size": 24,
        "output_dim": 96,
    },
    "text_config": {
        "model_type": "qwen3",
        "vocab_size": 320,
        "hidden_size": 96,
        "intermediate_size": 256,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 24,
        "max_position_embeddings": 1024,
        "tie_word_embeddings": True,
    },
}
TINY = {
    "tiny-wav2vec2": TINY_WAV2VEC2,
    "tiny-whisper": TINY_WHISPER,
    "tiny-moonshine": TINY_MOONSHINE,
    "tiny-parakeet-tdt": TINY_PARAKEET_TDT,
    "tiny-qwen3-asr": TINY_QWEN3_ASR,
}
