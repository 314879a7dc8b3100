"""transformers' guide to speech recognition: wav2vec2-base on MInDS-14 with a Wav2Vec2Processor."""

from __future__ import annotations

from typing import Any

import transformers as t
from published_models import waveforms, without_weights
from recipe_runs import Published, Recipe, Training

from asrconfig_go.recipe import build_processor

PUBLISHED = Published(
    title="transformers: automatic speech recognition",
    url="https://huggingface.co/docs/transformers/tasks/asr",
    model="facebook/wav2vec2-base",
    card="T4", batch=8, accumulation=2, precision="fp16", checkpointing=True, longest_s=20.0, mean_s=8.0, labels=250,
    assumed="the card (the page opens in Colab); clips of MInDS-14 up to 20 s",
)  # fmt: skip


def tiny() -> Training:
    from material import rows

    clips = rows()
    processor = build_processor(clips["text"], "wav2vec2")
    vocabulary = len(processor.tokenizer)
    prepared = clips.map(lambda clip: prepare(clip, processor), remove_columns=clips.column_names)
    config = t.Wav2Vec2Config(
        vocab_size=vocabulary, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        conv_dim=(16,) * 7, num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4, hidden_dropout=0.0,
        attention_dropout=0.0, activation_dropout=0.0, feat_proj_dropout=0.0, final_dropout=0.0, layerdrop=0.0,
        apply_spec_augment=False, ctc_loss_reduction="mean", ctc_zero_infinity=True,
        pad_token_id=processor.tokenizer.pad_token_id,
    )  # fmt: skip
    settings = {"gradient_checkpointing": True, "warmup_steps": 500}
    return Training(t.Wav2Vec2ForCTC(config), prepared, Collator(processor), settings=settings)


def prepare(clip: dict[str, Any], processor: Any) -> dict[str, Any]:
    """A waveform as the extractor makes it, and the transcript in tokens."""
    from material import wave

    made = processor(wave(clip), sampling_rate=16_000, text=clip["text"])
    return {"input_values": made["input_values"][0], "labels": made["labels"]}


class Collator:
    """Waveforms and labels are padded each by their own rule, and padding of labels is left out of the loss."""

    def __init__(self, processor: Any) -> None:
        self.processor = processor

    def __call__(self, clips: list[dict[str, Any]]) -> dict[str, Any]:
        heard = [{"input_values": clip["input_values"]} for clip in clips]
        said = [{"input_ids": clip["labels"]} for clip in clips]
        batch = self.processor.pad(heard, padding="longest", return_tensors="pt")
        labels = self.processor.pad(labels=said, padding="longest", return_tensors="pt")
        batch["labels"] = labels["input_ids"].masked_fill(labels["attention_mask"] != 1, -100)
        return dict(batch)


def real() -> Any:
    return without_weights(lambda: t.Wav2Vec2ForCTC(t.Wav2Vec2Config(ctc_loss_reduction="mean")))


RECIPES = (Recipe("asr_guide", PUBLISHED, tiny, real, waveforms),)
