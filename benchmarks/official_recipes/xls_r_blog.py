"""Hugging Face's blog on fine-tuning XLS-R: the convolutions stay as they are, batches are of similar lengths."""

from __future__ import annotations

from typing import Any

import transformers as t
from asr_guide import Collator, prepare
from published_models import waveforms, without_weights
from recipe_runs import Published, Recipe, Training

from asrconfig_go.recipe import build_processor

PUBLISHED = Published(
    title="blog: fine-tune XLS-R",
    url="https://huggingface.co/blog/fine-tune-xlsr-wav2vec2",
    model="facebook/wav2vec2-xls-r-300m",
    card="T4", batch=16, accumulation=2, precision="fp16", checkpointing=True, longest_s=10.0, mean_s=4.5, labels=150,
    assumed="which of Colab's cards (a T4); Turkish clips of Common Voice up to 10 s",
)  # fmt: skip


def tiny() -> Training:
    from material import rows

    clips = rows()
    processor = build_processor(clips["text"], "wav2vec2")
    prepared = clips.map(lambda clip: prepare(clip, processor), remove_columns=clips.column_names)
    config = _config(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, conv_dim=(16,) * 7,
        num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4, attention_dropout=0.0, hidden_dropout=0.0,
        activation_dropout=0.0, final_dropout=0.0, layerdrop=0.0, apply_spec_augment=False,
        pad_token_id=processor.tokenizer.pad_token_id, vocab_size=len(processor.tokenizer), ctc_zero_infinity=True,
    )  # fmt: skip
    return Training(_frozen(config), prepared, Collator(processor), settings={"gradient_checkpointing": True})


def _config(**sizes: Any) -> Any:
    return t.Wav2Vec2Config(
        feat_extract_norm="layer", do_stable_layer_norm=True, conv_bias=True, feat_proj_dropout=0.0,
        ctc_loss_reduction="mean", **sizes,
    )  # fmt: skip


def _frozen(config: Any) -> Any:
    model = t.Wav2Vec2ForCTC(config)
    model.freeze_feature_encoder()
    return model


def real() -> Any:
    large = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
    regular = {"attention_dropout": 0.0, "hidden_dropout": 0.0, "mask_time_prob": 0.05, "layerdrop": 0.0}
    return without_weights(lambda: _frozen(_config(vocab_size=40, **large, **regular)))


RECIPES = (Recipe("xls_r_blog", PUBLISHED, tiny, real, waveforms),)
