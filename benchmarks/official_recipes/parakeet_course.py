"""The audio course's chapter on Parakeet: the CTC model of 1.1 billion parameters learns Spanish, whole and by LoRA."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
import transformers as t
from published_models import features, with_adapters, without_weights
from recipe_runs import Published, Recipe, Training

BLANK = 1024
ADAPTERS = {"r": 16, "lora_alpha": 32, "lora_dropout": 0.05, "bias": "none", "target_modules": ["linear"]}
WHOLE = Published(
    title="audio course: Parakeet CTC",
    url="https://github.com/huggingface/audio-transformers-course/pull/230",
    model="nvidia/parakeet-ctc-1.1b",
    card="L4", batch=2, accumulation=4, precision="bf16", longest_s=20.0, mean_s=15.0, labels=120,
    assumed='the card ("a GPU"); clips of Multilingual LibriSpeech up to 20 s',
)  # fmt: skip
BY_LORA = replace(
    WHOLE, title="audio course: Parakeet CTC, LoRA", card="T4",
    assumed='the card ("a standard GPU"); clips of Multilingual LibriSpeech up to 20 s',
    remark='`target_modules=["linear"]` matches one layer, that of the subsampling: `linear1` and others are not it',
)  # fmt: skip


def tiny(lora: bool = False) -> Training:
    from material import padded, rows, tokens, wave
    from peft import LoraConfig, get_peft_model

    extractor = t.ParakeetFeatureExtractor(feature_size=80)
    config = t.ParakeetCTCConfig(
        vocab_size=260, pad_token_id=259,
        encoder_config={
            "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64,
            "subsampling_conv_channels": 16, "dropout": 0.0, "layerdrop": 0.0, "activation_dropout": 0.0,
            "attention_dropout": 0.0,
        },
    )  # fmt: skip
    model = t.ParakeetForCTC(config)
    if lora:
        model = get_peft_model(model, LoraConfig(**{**ADAPTERS, "lora_dropout": 0.0}))

    def collate(clips: list[dict[str, Any]]) -> dict[str, Any]:
        """Features and labels by the processor's rules: labels are padded with the blank token."""
        made = extractor([wave(clip) for clip in clips], sampling_rate=16_000, return_tensors="pt")
        labels = padded([tokens(clip) for clip in clips], config.pad_token_id)
        return {
            "input_features": made["input_features"],
            "attention_mask": made["attention_mask"],
            "labels": labels,
        }

    return Training(model, rows(), collate, settings={"remove_unused_columns": False})


def real(lora: bool = False) -> Any:
    encoder = {"hidden_size": 1024, "num_hidden_layers": 42, "intermediate_size": 4096, "num_attention_heads": 8}
    config = t.ParakeetCTCConfig(vocab_size=BLANK + 1, pad_token_id=BLANK, encoder_config=encoder)
    model = without_weights(lambda: t.ParakeetForCTC(config))
    return with_adapters(model, **ADAPTERS) if lora else model


def batch(clips: int, samples: int, labels: int) -> dict[str, Any]:
    frames, mask = features(clips, samples, 80)
    return {
        "input_features": frames,
        "attention_mask": mask.bool(),
        "labels": torch.ones(clips, labels, dtype=torch.long),
    }


RECIPES = (
    Recipe("parakeet_course", WHOLE, tiny, real, batch),
    Recipe(
        "parakeet_course_lora", BY_LORA, lambda: tiny(lora=True), lambda: real(lora=True), batch,
        untrained=lambda model: model.get_base_model().encoder.layers,
    ),
)  # fmt: skip
