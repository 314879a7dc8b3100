"""Speech models small enough for tests, with clips for them, and a callback that keeps a gradient."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    Trainer,
    TrainingArguments,
    Wav2Vec2BertConfig,
    Wav2Vec2BertForCTC,
    Wav2Vec2Config,
    Wav2Vec2ForCTC,
    WhisperConfig,
    WhisperForConditionalGeneration,
)
from transformers.trainer_callback import TrainerCallback

from asrconfig_go.plan import add_lora
from tiny_training import Regression

# Sizes of both kinds of CTC models, and nothing random.
_SMALL: dict[str, Any] = {
    "vocab_size": 8,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "apply_spec_augment": False,
    "pad_token_id": 0,
    "layerdrop": 0.0,
    **dict.fromkeys((f"{where}_dropout" for where in ("hidden", "attention", "feat_proj", "activation", "final")), 0.0),
}

# Of wav2vec2, HuBERT and WavLM.
CTC_SIZES: dict[str, Any] = {
    "conv_dim": (8, 8),
    "conv_stride": (5, 4),
    "conv_kernel": (10, 8),
    "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 2,
    "feat_extract_norm": "layer",
    **_SMALL,
}


def wav2vec2(reduction: str) -> Any:
    return Wav2Vec2ForCTC(Wav2Vec2Config(ctc_loss_reduction=reduction, **CTC_SIZES))


def whisper() -> Any:
    config = WhisperConfig(
        vocab_size=20,
        num_mel_bins=4,
        d_model=8,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=8,
        decoder_ffn_dim=8,
        max_source_positions=16,
        max_target_positions=8,
        dropout=0.0,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        suppress_tokens=[],
        begin_suppress_tokens=[],
    )
    return WhisperForConditionalGeneration(config)


def w2v_bert() -> Any:
    config = Wav2Vec2BertConfig(
        feature_projection_input_dim=8, conformer_conv_dropout=0.0, ctc_loss_reduction="mean", **_SMALL
    )
    return Wav2Vec2BertForCTC(config)


def adapted(model: Any) -> Any:
    """With LoRA; without PEFT the test that asks for it is skipped."""
    pytest.importorskip("peft")
    return add_lora(model, 2)


def made_own(model: Any) -> Any:
    """The same with a class of the user's, whose loss no table knows."""
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    inner.__class__ = type(type(inner).__name__, (type(inner),), {"__module__": __name__})
    return model


MODELS: dict[str, Any] = {
    "ctc mean": lambda: wav2vec2("mean"),
    "ctc sum": lambda: wav2vec2("sum"),
    "whisper": whisper,
    "w2v-bert": w2v_bert,
    "ctc lora": lambda: adapted(wav2vec2("mean")),
    "whisper lora": lambda: adapted(whisper()),
    "regression": Regression,
}
SHAPES: dict[str, tuple[str, tuple[int, ...]]] = {
    "whisper": ("input_features", (16, 4, 32)),
    "whisper lora": ("input_features", (16, 4, 32)),
    "w2v-bert": ("input_features", (16, 40, 8)),
}


class Clips(torch.utils.data.Dataset):  # type: ignore[misc]
    """16 clips of the same length, with four labels each, or ``unequal`` numbers from one to four."""

    def __init__(self, kind: str, unequal: bool = False) -> None:
        source = torch.Generator().manual_seed(1)
        if kind == "regression":
            x, y = torch.randn(16, 6, generator=source), torch.randn(16, 1, generator=source)
            self.items = [{"x": x[i], "labels": y[i], "index": i} for i in range(16)]
            return
        labels = torch.randint(3, 8, (16, 4), generator=source)
        if unequal:
            for i in range(16):
                labels[i, 1 + i % 4 :] = -100
        name, shape = SHAPES.get(kind, ("input_values", (16, 800)))
        inputs = torch.randn(*shape, generator=source)
        self.items = [{name: inputs[i], "labels": labels[i]} for i in range(16)]

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, i: int) -> dict[str, Any]:
        return dict(self.items[i])


class Keep(TrainerCallback):  # type: ignore[misc]
    """The gradients of the first optimizer step."""

    gradient: Any = None

    def on_pre_optimizer_step(self, *args: Any, model: Any = None, **kwargs: Any) -> None:
        self.gradient = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def gradient(
    kind: str, output: Path, micro: int, accumulation: int, train: Any, unequal: bool = False
) -> tuple[Any, Any]:
    """The gradient of one step over the same 16 samples, and the trainer."""
    torch.manual_seed(0)
    keep = Keep()
    arguments = TrainingArguments(
        str(output),
        per_device_train_batch_size=micro,
        gradient_accumulation_steps=accumulation,
        max_steps=1,
        max_grad_norm=0.0,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = Trainer(MODELS[kind](), arguments, train_dataset=Clips(kind, unequal), callbacks=[keep])
    train(trainer)
    return keep.gradient, trainer
