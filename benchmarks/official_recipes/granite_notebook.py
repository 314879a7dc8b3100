"""IBM's notebook for Granite Speech: projector and adapters are trained, encoder and language model are not."""

from __future__ import annotations

from typing import Any

import torch
import transformers as t
from published_models import sequences, without_weights
from recipe_runs import Published, Recipe, Training

WINDOW, QUERIES = 15, 3  # pairs of frames of a window of the projector, and the embeddings that it makes of them
PUBLISHED = Published(
    title="Granite Speech: projector and LoRA",
    url="https://github.com/ibm-granite/granite-speech-models/blob/main/notebooks/fine_tuning_granite_speech.ipynb",
    model="ibm-granite/granite-4.0-1b-speech",
    card="A100-80GB SXM", batch=16, accumulation=2, precision="bf16", weights="bf16", longest_s=20.0, mean_s=4.0,
    labels=100,
    assumed="the card; clips of GigaSpeech up to 20 s",
    remark="this checkpoint has no adapters: the projector alone is trained",
)  # fmt: skip


def tiny() -> Training:
    from material import rows

    config = t.GraniteSpeechConfig(
        encoder_config={
            "input_dim": 160, "num_layers": 2, "hidden_dim": 32, "num_heads": 2, "dropout": 0.0, "context_size": 50,
            "max_pos_emb": 64,
        },
        projector_config=_projector(32, 2, dropout=0.0),
        text_config={
            "model_type": "granite", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
            "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 512, "pad_token_id": 256,
        },
        audio_token_index=300, has_lora_adapter=False,
    )  # fmt: skip
    return Training(
        _only_the_projector(t.GraniteSpeechForConditionalGeneration(config)), rows(), collate,
        settings={"remove_unused_columns": False},
    )  # fmt: skip


def _projector(width: int, heads: int, dropout: float = 0.1) -> dict[str, Any]:
    return {
        "model_type": "blip_2_qformer", "hidden_size": width, "encoder_hidden_size": width,
        "intermediate_size": 4 * width, "num_attention_heads": heads, "num_hidden_layers": 2,
        "cross_attention_frequency": 1, "hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout,
    }  # fmt: skip


def _only_the_projector(model: Any) -> Any:
    for name, parameter in model.named_parameters():
        parameter.requires_grad = "projector" in name or "lora" in name
    return model


def collate(clips: list[dict[str, Any]]) -> dict[str, Any]:
    """Prompts are padded on the left and transcripts on the right, so that every answer begins at the same place.

    A stand-in for the processor, whose features need torchaudio.
    """
    from material import CHARACTERS, EOS, PAD, filterbank, mask, padded, tokens

    pairs = [filterbank(clip, 80, stacked=2) for clip in clips]
    heard = [-(-len(one) // WINDOW) * QUERIES for one in pairs]
    asked = CHARACTERS("user transcribe")["input_ids"]
    prompts = [asked + [300] * count for count in heard]
    answers = [tokens(clip, after=[EOS]) for clip in clips]
    before, after = padded(prompts, PAD, side="left"), padded(answers, PAD)
    labels = torch.cat([torch.full_like(before, -100), padded(answers, -100)], 1)
    return {
        "input_ids": torch.cat([before, after], 1),
        "attention_mask": torch.cat([mask(prompts, side="left"), mask(answers)], 1),
        "labels": labels,
        "input_features": padded(pairs),
        "input_features_mask": torch.arange(max(heard))[None] < torch.tensor(heard)[:, None],
    }


def real() -> Any:
    config = t.GraniteSpeechConfig(
        encoder_config={"input_dim": 160, "num_layers": 16, "hidden_dim": 1024, "num_heads": 8, "output_dim": 348},
        projector_config=_projector(1024, 16),
        text_config={
            "model_type": "granite", "hidden_size": 2048, "intermediate_size": 4096, "num_hidden_layers": 40,
            "num_attention_heads": 16, "num_key_value_heads": 4, "vocab_size": 100353, "tie_word_embeddings": True,
            "max_position_embeddings": 4096,
        },
        audio_token_index=100352, has_lora_adapter=False,
    )  # fmt: skip
    model = without_weights(lambda: t.GraniteSpeechForConditionalGeneration(config), torch.bfloat16)
    return _only_the_projector(model)


def batch(clips: int, samples: int, labels: int) -> dict[str, Any]:
    pairs = (samples // 160 + 1) // 2
    heard = -(-pairs // WINDOW) * QUERIES
    audio = {
        "input_features": torch.zeros(clips, pairs, 160),
        "input_features_mask": torch.ones(clips, heard, dtype=torch.bool),
    }
    return {**audio, **sequences(clips, 100352, heard, labels)}


RECIPES = (Recipe("granite_notebook", PUBLISHED, tiny, real, batch, untrained=lambda model: model.model.encoder),)
