"""transformers' guide to audio classification: callers' intents by wav2vec2-base, of the first second of each clip."""

from __future__ import annotations

from typing import Any

import torch
import transformers as t
from published_models import without_weights
from recipe_runs import Published, Recipe, Training

INTENTS = 14
PUBLISHED = Published(
    title="transformers: audio classification",
    url="https://huggingface.co/docs/transformers/tasks/audio_classification",
    model="facebook/wav2vec2-base",
    card="T4", batch=32, accumulation=4, precision="fp32", longest_s=1.0, mean_s=1.0, labels=1,
    assumed="the card (the page opens in Colab)",
    remark="clips are cut to 16 000 samples",
)  # fmt: skip


def tiny() -> Training:
    from material import rows, wave

    extractor = t.Wav2Vec2FeatureExtractor()

    def prepare(clips: dict[str, list[Any]]) -> dict[str, Any]:
        heard = [wave({"audio": path}) for path in clips["audio"]]
        made = extractor(heard, sampling_rate=extractor.sampling_rate, max_length=16_000, truncation=True)
        return {"input_values": made["input_values"], "label": [len(text) % INTENTS for text in clips["text"]]}

    clips = rows()
    prepared = clips.map(prepare, batched=True, remove_columns=clips.column_names)
    config = t.Wav2Vec2Config(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, conv_dim=(16,) * 7,
        num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4, hidden_dropout=0.0, attention_dropout=0.0,
        activation_dropout=0.0, feat_proj_dropout=0.0, layerdrop=0.0, apply_spec_augment=False, num_labels=INTENTS,
    )  # fmt: skip
    model = t.Wav2Vec2ForSequenceClassification(config)
    # The Trainer pads with its extractor, which the recipe hands over as processing_class.
    return Training(model, prepared, t.DataCollatorWithPadding(extractor))


def real() -> Any:
    return without_weights(lambda: t.Wav2Vec2ForSequenceClassification(t.Wav2Vec2Config(num_labels=INTENTS)))


def batch(clips: int, samples: int, labels: int) -> dict[str, Any]:
    return {"input_values": torch.zeros(clips, samples), "labels": torch.zeros(clips, dtype=torch.long)}


RECIPES = (Recipe("audio_classification_guide", PUBLISHED, tiny, real, batch),)
