"""The audio course's chapter on Voxtral: Voxtral Mini learns Spanish, whole and by LoRA on a frozen audio tower."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
import transformers as t
from published_models import sequences, with_adapters, without_weights
from recipe_runs import Published, Recipe, Training

AUDIO = 24  # the placeholder's token
CHUNK, EMBEDDINGS = 480_000, 375  # samples of a chunk, and what it becomes
LAYERS = ["q_proj", "k_proj", "v_proj", "o_proj"]
ADAPTERS = {
    "r": 8, "lora_alpha": 32, "lora_dropout": 0.0, "bias": "none", "target_modules": LAYERS,
    "task_type": "SEQ_2_SEQ_LM",
}  # fmt: skip
BY_LORA = Published(
    title="audio course: Voxtral Mini, LoRA",
    url="https://github.com/huggingface/audio-transformers-course/pull/231",
    model="mistralai/Voxtral-Mini-3B-2507",
    card="T4", batch=2, accumulation=4, precision="bf16", weights="bf16", longest_s=20.0, mean_s=15.0, labels=256,
    assumed="clips of Multilingual LibriSpeech up to 20 s",
    remark="its names of layers match the audio tower's attention, too, so that the frozen tower has adapters as well",
)  # fmt: skip
WHOLE = replace(BY_LORA, title="audio course: Voxtral Mini", remark='its page says 1 to 2 hours "on a T4"')


def tiny(lora: bool = False) -> Training:
    from material import rows
    from peft import LoraConfig, get_peft_model

    config = t.VoxtralConfig(
        audio_config={
            "hidden_size": 32, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2,
            "num_mel_bins": 80,
        },
        text_config={
            "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
            "num_key_value_heads": 1, "head_dim": 16, "vocab_size": 512, "max_position_embeddings": 4096,
        },
        audio_token_id=AUDIO,
    )  # fmt: skip
    model = t.VoxtralForConditionalGeneration(config)
    if lora:
        for parameter in model.model.audio_tower.parameters():
            parameter.requires_grad = False
        model = get_peft_model(model, LoraConfig(**ADAPTERS))
    return Training(model, rows(), Collator(), settings={"remove_unused_columns": False})


class Collator:
    """A request to transcribe, then the transcript; the loss counts the transcript.

    A stand-in for the processor's ``apply_transcription_request``, which needs mistral-common and its vocabulary.
    """

    def __init__(self) -> None:
        self.extractor = t.WhisperFeatureExtractor(feature_size=80)

    def __call__(self, clips: list[dict[str, Any]]) -> dict[str, Any]:
        from material import EOS, PAD, mask, padded, tokens

        chunks = [self._chunks(clip) for clip in clips]
        requests = [[257, 25, *[AUDIO] * EMBEDDINGS * len(heard), 34] for heard in chunks]
        said = [[*tokens(clip)[:256].tolist(), EOS] for clip in clips]
        whole = [request + text for request, text in zip(requests, said, strict=True)]
        labels = [[-100] * len(request) + text for request, text in zip(requests, said, strict=True)]
        return {
            "input_ids": padded(whole, PAD), "attention_mask": mask(whole), "labels": padded(labels, -100),
            "input_features": torch.cat(chunks),
        }  # fmt: skip

    def _chunks(self, clip: dict[str, Any]) -> torch.Tensor:
        """Frames of whole chunks of 30 s, a row each."""
        from material import wave

        made = self.extractor(
            wave(clip), sampling_rate=16_000, padding=True, truncation=False, pad_to_multiple_of=CHUNK,
            return_tensors="pt",
        )  # fmt: skip
        return made["input_features"].reshape(80, -1, 3000).transpose(0, 1)


def real(lora: bool = False) -> Any:
    config = t.VoxtralConfig(audio_token_id=AUDIO)  # transformers' defaults are this checkpoint's sizes
    model = without_weights(lambda: t.VoxtralForConditionalGeneration(config), torch.bfloat16)
    if not lora:
        return model
    for parameter in model.model.audio_tower.parameters():
        parameter.requires_grad = False
    return with_adapters(model, **ADAPTERS)


def batch(clips: int, samples: int, labels: int) -> dict[str, Any]:
    chunks = -(-samples // CHUNK)
    audio = {"input_features": torch.zeros(clips * chunks, 128, 3000)}
    return {**audio, **sequences(clips, AUDIO, EMBEDDINGS * chunks, labels)}


RECIPES = (
    Recipe("voxtral_course", WHOLE, tiny, real, batch),
    Recipe("voxtral_course_lora", BY_LORA, lambda: tiny(lora=True), lambda: real(lora=True), batch),
)
