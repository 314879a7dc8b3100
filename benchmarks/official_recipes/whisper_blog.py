"""Hugging Face's blog on fine-tuning Whisper, and PEFT's example of its large model with LoRA."""

from __future__ import annotations

from typing import Any

import torch
import transformers as t
from published_models import with_adapters, without_weights
from recipe_runs import Published, Recipe, Training

from asrconfig_go.recipe import build_processor

FRAMES = 3000  # of every clip: the extractor pads them to 30 s
ADAPTERS = {"r": 32, "lora_alpha": 64, "target_modules": ["q_proj", "v_proj"], "lora_dropout": 0.05, "bias": "none"}
SMALL = {
    "d_model": 768, "encoder_layers": 12, "decoder_layers": 12, "encoder_attention_heads": 12,
    "decoder_attention_heads": 12, "encoder_ffn_dim": 3072, "decoder_ffn_dim": 3072,
}  # fmt: skip
LARGE = {
    "d_model": 1280, "encoder_layers": 32, "decoder_layers": 32, "encoder_attention_heads": 20,
    "decoder_attention_heads": 20, "encoder_ffn_dim": 5120, "decoder_ffn_dim": 5120,
}  # fmt: skip
BLOG = Published(
    title="blog: fine-tune Whisper",
    url="https://huggingface.co/blog/fine-tune-whisper",
    model="openai/whisper-small",
    card="T4", batch=16, accumulation=1, precision="fp16", checkpointing=True, longest_s=30.0, mean_s=30.0, labels=150,
    assumed="which of Colab's cards (a T4); Hindi sentences of up to 150 tokens",
)  # fmt: skip
BY_LORA = Published(
    title="PEFT: Whisper large-v2, LoRA",
    url="https://github.com/huggingface/peft/blob/main/examples/int8_training/peft_bnb_whisper_large_v2_training.ipynb",
    model="openai/whisper-large-v2",
    card="T4", batch=8, accumulation=1, precision="fp16", weights="fp16", checkpointing=True, longest_s=30.0,
    mean_s=30.0, labels=150,
    assumed="the card (Colab); Hindi sentences of up to 150 tokens",
    remark="its weights are int8, here fp16: 1.4 GiB more",
)  # fmt: skip


def tiny(lora: bool = False) -> Training:
    from material import rows, wave
    from peft import LoraConfig, get_peft_model

    clips = rows()
    processor = build_processor(clips["text"], "tiny-whisper")

    def prepare(clip: dict[str, Any]) -> dict[str, Any]:
        heard = processor.feature_extractor(wave(clip), sampling_rate=16_000)
        return {"input_features": heard.input_features[0], "labels": processor.tokenizer(clip["text"]).input_ids}

    prepared = clips.map(prepare, remove_columns=clips.column_names)
    letters = processor.tokenizer
    config = t.WhisperConfig(
        vocab_size=len(letters), num_mel_bins=40, d_model=32, encoder_layers=2, decoder_layers=2,
        encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=64, decoder_ffn_dim=64,
        max_source_positions=250, max_target_positions=96, dropout=0.0, pad_token_id=letters.pad_token_id,
        eos_token_id=letters.eos_token_id, bos_token_id=letters.eos_token_id,
        decoder_start_token_id=letters.convert_tokens_to_ids("<|startoftranscript|>"),
    )  # fmt: skip
    model = t.WhisperForConditionalGeneration(config)
    settings: dict[str, Any] = {"gradient_checkpointing": True}
    if lora:  # PEFT's wrapper has another signature than the model: columns and labels are to be named
        model = get_peft_model(model, LoraConfig(**{**ADAPTERS, "lora_dropout": 0.0}))
        settings = {"remove_unused_columns": False, "label_names": ["labels"]}
    return Training(
        model, prepared, Collator(processor, config.decoder_start_token_id), t.Seq2SeqTrainer,
        t.Seq2SeqTrainingArguments, settings,
    )  # fmt: skip


class Collator:
    """Features as they are, labels padded; the start token goes, as the model puts it in front itself."""

    def __init__(self, processor: Any, start: int) -> None:
        self.processor, self.start = processor, start

    def __call__(self, clips: list[dict[str, Any]]) -> dict[str, Any]:
        heard = [{"input_features": clip["input_features"]} for clip in clips]
        batch = self.processor.feature_extractor.pad(heard, return_tensors="pt")
        said = self.processor.tokenizer.pad([{"input_ids": clip["labels"]} for clip in clips], return_tensors="pt")
        labels = said["input_ids"].masked_fill(said["attention_mask"] != 1, -100)
        if (labels[:, 0] == self.start).all():
            labels = labels[:, 1:]
        return {"input_features": batch["input_features"], "labels": labels}


def real(sizes: dict[str, int], dtype: torch.dtype = torch.float32) -> Any:
    return without_weights(lambda: t.WhisperForConditionalGeneration(t.WhisperConfig(**sizes)), dtype)


def batch(clips: int, samples: int, labels: int) -> dict[str, Any]:
    said = torch.ones(clips, labels, dtype=torch.long)
    return {"input_features": torch.zeros(clips, 80, FRAMES), "labels": said}


RECIPES = (
    Recipe("whisper_blog", BLOG, tiny, lambda: real(SMALL), batch),
    Recipe(
        "whisper_lora", BY_LORA, lambda: tiny(lora=True),
        lambda: with_adapters(real(LARGE, torch.float16), **ADAPTERS), batch,
    ),
)  # fmt: skip
