"""transformers' guide to audio-text-to-text: Audio Flamingo 3 with LoRA describes clips of AudioCaps."""

from __future__ import annotations

from typing import Any

import torch
import transformers as t
from published_models import sequences, with_adapters, without_weights
from recipe_runs import Published, Recipe, Training

LAYERS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
ADAPTERS = {
    "r": 16, "lora_alpha": 32, "target_modules": LAYERS, "lora_dropout": 0.05, "bias": "none",
    "task_type": "CAUSAL_LM",
}  # fmt: skip
WINDOW = 30 * 100  # frames to which the extractor pads every clip
PUBLISHED = Published(
    title="transformers: audio-text-to-text, LoRA",
    url="https://huggingface.co/docs/transformers/tasks/audio_text_to_text",
    model="nvidia/audio-flamingo-3-hf",
    card="A100-40GB SXM", batch=4, accumulation=4, precision="bf16", checkpointing=True, weights="bf16",
    longest_s=10.0, mean_s=10.0, labels=40,
    assumed="the card; captions of up to 40 tokens",
    remark="its names of layers match the audio encoder's attention, too, so that the encoder has adapters as well",
)  # fmt: skip
CHAT = (
    "{% for turn in messages %}{{ turn['role'] }}\n{% for part in turn['content'] %}"
    "{% if part['type'] == 'audio' %}<sound>{% else %}{{ part['text'] }}{% endif %}{% endfor %}</s>\n{% endfor %}"
)


def tiny() -> Training:
    from material import rows, tokenizer, wave
    from peft import LoraConfig, get_peft_model

    letters = tokenizer("<sound>")
    processor = t.AudioFlamingo3Processor(t.WhisperFeatureExtractor(feature_size=128), letters, chat_template=CHAT)
    config = t.AudioFlamingo3Config(
        audio_config={"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2},
        text_config={
            "model_type": "qwen2", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
            "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": len(letters), "pad_token_id": 256,
        },
        audio_token_id=letters.convert_tokens_to_ids("<sound>"),
    )  # fmt: skip
    model = get_peft_model(
        t.AudioFlamingo3ForConditionalGeneration(config), LoraConfig(**{**ADAPTERS, "lora_dropout": 0.0})
    )

    def collate(clips: list[dict[str, Any]]) -> dict[str, Any]:
        """A question and its answer for each clip, in the model's chat template; it makes the labels, too."""
        return dict(
            processor.apply_chat_template(
                [_turns(wave(clip), clip["text"]) for clip in clips], tokenize=True, add_generation_prompt=False,
                return_dict=True, output_labels=True,
            )
        )  # fmt: skip

    return Training(model, rows(), collate, settings={"gradient_checkpointing": True, "remove_unused_columns": False})


def _turns(heard: Any, caption: str) -> list[dict[str, Any]]:
    asked = [{"type": "text", "text": "Describe the audio."}, {"type": "audio", "audio": heard}]
    return [
        {"role": "user", "content": asked},
        {"role": "assistant", "content": [{"type": "text", "text": caption}]},
    ]


def real() -> Any:
    config = t.AudioFlamingo3Config(
        text_config={
            "model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28,
            "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 151672,
        }
    )  # fmt: skip
    model = without_weights(lambda: t.AudioFlamingo3ForConditionalGeneration(config), torch.bfloat16)
    return with_adapters(model, **ADAPTERS)


def batch(clips: int, samples: int, labels: int) -> dict[str, Any]:
    frames = samples // 160
    heard = ((frames - 1) // 2 + 1 - 2) // 2 + 1
    mask = torch.zeros(clips, WINDOW, dtype=torch.long)
    mask[:, :frames] = 1
    audio = {"input_features": torch.zeros(clips, 128, WINDOW), "input_features_mask": mask}
    return {**audio, **sequences(clips, 151669, heard, labels)}


RECIPES = (Recipe("audio_text_guide", PUBLISHED, tiny, real, batch),)
