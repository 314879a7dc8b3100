"""Qwen's own script for Qwen3-ASR: every weight in bf16, on prompts with their transcripts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
import transformers as t
from published_models import sequences, without_weights
from recipe_runs import Published, Recipe, Training
from transformers import Trainer

AUDIO = 151676
# Issue 91: clips of up to 30 s, whose Tamil transcripts its tokenizer splits into several tokens a letter.
ISSUE = Published(
    title="Qwen3-ASR: qwen3_asr_sft.py, as in its issue 91",
    url="https://github.com/QwenLM/Qwen3-ASR/issues/91",
    model="Qwen/Qwen3-ASR-0.6B",
    card="A40", batch=8, accumulation=2, precision="bf16", checkpointing=True, weights="bf16", longest_s=30.0,
    mean_s=8.0, labels=1000, text_lengths=(100, 500, 1500, 2000),
    assumed="transcripts of up to 1000 tokens (Tamil) at 30 s",
    remark="ran out of memory after 200 steps, on an A40 of 48 GB",
)  # fmt: skip
SCRIPT = replace(
    ISSUE, title="Qwen3-ASR: qwen3_asr_sft.py as it stands", model="Qwen/Qwen3-ASR-1.7B",
    url="https://github.com/QwenLM/Qwen3-ASR/tree/main/finetuning", card="A100-80GB SXM", batch=32, accumulation=4,
    checkpointing=False, labels=120, text_lengths=(), remark="", assumed="the card; English clips up to 30 s",
)  # fmt: skip
ENCODERS = {
    "0.6B": {"d_model": 896, "encoder_layers": 18, "encoder_attention_heads": 14, "encoder_ffn_dim": 3584},
    "1.7B": {"d_model": 1024, "encoder_layers": 24, "encoder_attention_heads": 16, "encoder_ffn_dim": 4096},
}
WIDTHS = {"0.6B": (1024, 3072), "1.7B": (2048, 6144)}  # of the decoder and its feed-forward layers
MARKS = {"audio_token": "<|audio_pad|>", "audio_bos_token": "<|audio_start|>", "audio_eos_token": "<|audio_end|>"}
PREFIX = "system\n\nuser\n<|audio_start|><|audio_pad|><|audio_end|>\nassistant\n"


class CastingTrainer(Trainer):
    """Features in the weights' type, since the model's own layers do not cast them."""

    def _prepare_inputs(self, inputs: dict[str, Any]) -> dict[str, Any]:
        made = super()._prepare_inputs(inputs)
        floats = {name: value for name, value in made.items() if torch.is_tensor(value) and value.is_floating_point()}
        return {**made, **{name: value.to(self.model.dtype) for name, value in floats.items()}}


def tiny() -> Training:
    from material import rows, tokenizer

    letters = tokenizer("<asr_text>", "<timestamp>", **MARKS)
    audio = letters.convert_tokens_to_ids("<|audio_pad|>")
    config = t.Qwen3ASRConfig(
        audio_config={
            "d_model": 32, "encoder_layers": 2, "encoder_attention_heads": 2, "encoder_ffn_dim": 64, "output_dim": 32,
            "downsample_hidden_size": 16,
        },
        text_config={
            "model_type": "qwen3", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
            "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "vocab_size": len(letters),
            "tie_word_embeddings": True,
        },
        audio_token_id=audio, timestamp_token_id=letters.convert_tokens_to_ids("<timestamp>"), pad_token_id=256,
        eos_token_id=258,
    )  # fmt: skip
    processor = t.Qwen3ASRProcessor(t.Qwen3ASRFeatureExtractor(), letters)
    settings = {"gradient_checkpointing": True, "remove_unused_columns": False}
    return Training(
        t.Qwen3ASRForConditionalGeneration(config), rows(), Collator(processor), CastingTrainer, settings=settings
    )


class Collator:
    """The processor is called twice, with and without the transcript: what both have does not count in the loss."""

    def __init__(self, processor: Any) -> None:
        self.processor = processor

    def __call__(self, clips: list[dict[str, Any]]) -> dict[str, Any]:
        from material import wave

        letters, heard = self.processor.tokenizer, [wave(clip) for clip in clips]
        # Padded on the right: the decoder sees a prompt at the beginning of each row.
        settings = {"audio": heard, "return_tensors": "pt", "padding": True, "text_kwargs": {"padding_side": "right"}}
        whole = self.processor(text=[PREFIX + clip["text"] + letters.eos_token for clip in clips], **settings)
        asked = self.processor(text=[PREFIX] * len(clips), **settings)
        labels = whole["input_ids"].masked_fill(whole["attention_mask"] == 0, -100)
        for row, length in enumerate(asked["attention_mask"].sum(1).tolist()):
            labels[row, :length] = -100
        return {**whole, "labels": labels}


def real(size: str) -> Any:
    width, inner = WIDTHS[size]
    decoder = {
        "model_type": "qwen3", "vocab_size": 151936, "hidden_size": width, "intermediate_size": inner,
        "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
        "max_position_embeddings": 65536, "tie_word_embeddings": True,
    }  # fmt: skip
    config = t.Qwen3ASRConfig(audio_config={**ENCODERS[size], "output_dim": width}, text_config=decoder)
    return without_weights(lambda: t.Qwen3ASRForConditionalGeneration(config), torch.bfloat16)


def batch(clips: int, samples: int, labels: int) -> dict[str, Any]:
    chunks, rest = divmod(samples // 160, 100)
    frames = 100 * (chunks + (rest > 0))  # padded to whole chunks
    mask = torch.zeros(clips, frames, dtype=torch.long)
    mask[:, : samples // 160] = 1
    audio = {"input_features": torch.zeros(clips, 128, frames), "input_features_mask": mask}
    return {**audio, **sequences(clips, AUDIO, 13 * chunks + -(-rest // 8), labels)}


RECIPES = (
    Recipe("qwen3_asr_issue_91", ISSUE, tiny, lambda: real("0.6B"), batch),
    Recipe("qwen3_asr_sft", SCRIPT, tiny, lambda: real("1.7B"), batch),
)
