"""The configs of two small models that need no network: what ``tiny-wav2vec2`` and ``tiny-whisper`` are.

Plain values, so that planning for them needs no transformers. Vocabularies are those of the bundled digits and of
bytes; a training has those of its own processor.
"""

from __future__ import annotations

from typing import Any

from .digits import BLANK

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
    "hidden_dropout": 0.0,
    "attention_dropout": 0.0,
    "activation_dropout": 0.0,
    "feat_proj_dropout": 0.0,
    "final_dropout": 0.0,
    "layerdrop": 0.0,
    "ctc_loss_reduction": "mean",  # the default, "sum", makes the gradient grow with the batch
    "ctc_zero_infinity": True,
}
TINY_WHISPER: dict[str, Any] = {
    "model_type": "whisper",
    "architectures": ["WhisperForConditionalGeneration"],
    "vocab_size": 261,  # bytes, and five marks
    "num_mel_bins": 40,
    "d_model": 96,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 256,
    "decoder_ffn_dim": 256,
    "max_source_positions": 250,  # 5 s
    "max_target_positions": 96,
    "suppress_tokens": None,
    "begin_suppress_tokens": None,
    "pad_token_id": 256,
    "bos_token_id": 256,
    "eos_token_id": 256,
    "decoder_start_token_id": 257,
}
TINY = {"tiny-wav2vec2": TINY_WAV2VEC2, "tiny-whisper": TINY_WHISPER}
