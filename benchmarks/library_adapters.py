"""Adapters of PEFT."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch
from library_memory import ROWS, STEPS, Kind
from library_trainers import (
    own,
)
from torch import nn
from transformers import TrainerCallback

VOCABULARY = 40


def language_model(kind: str = "LlamaForCausalLM", **changes: Any) -> Any:
    """A tiny Llama with random weights, in float64."""
    transformers = importlib.import_module("transformers")
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=64, initializer_range=0.3, pad_token_id=0, bos_token_id=1,
        eos_token_id=2, **changes,
    )  # fmt: skip
    return getattr(transformers, kind)(config).double()


def sentences(longest: int = 10) -> list[dict[str, Any]]:
    """Token ids of unequal numbers."""
    source = torch.Generator().manual_seed(2)
    rows = []
    for _ in range(ROWS):
        length = int(torch.randint(4, longest + 1, (), generator=source))
        tokens = torch.randint(3, VOCABULARY, (length,), generator=source)
        rows.append({"input_ids": tokens, "labels": tokens})
    return rows


def padded(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Padded on the right; labels by -100."""

    def pad(name: str, value: int) -> Any:
        return nn.utils.rnn.pad_sequence([row[name] for row in rows], batch_first=True, padding_value=value)

    ids = pad("input_ids", 0)
    return {"input_ids": ids, "labels": pad("labels", -100), "attention_mask": (ids != 0).long()}


def adapter(config: str, *, callbacks: Callable[[], list[Any]] = list, rate: float = 0.05, **changes: Any) -> Kind:
    """An adapter on the tiny Llama; its own weights in float64, as those of the model."""
    peft = importlib.import_module("peft")

    def model() -> Any:
        adapted = peft.get_peft_model(language_model(), getattr(peft, config)(task_type="CAUSAL_LM", **changes))
        for p in adapted.double().parameters():  # zeros keep gradients of others zero
            if p.requires_grad and not p.any():
                nn.init.normal_(p, std=0.1)
        return adapted

    return own(
        model=model, rows=sentences, collate=lambda: padded, callbacks=callbacks, settings={"learning_rate": rate}
    )


class AllocateRanks(TrainerCallback):  # type: ignore[misc]
    """AdaLoRA's ranks, by the gradients of each step."""

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        model.base_model.update_and_allocate(state.global_step)


_TARGETS: dict[str, Any] = {"target_modules": ["q_proj", "v_proj"]}
ADAPTERS: dict[str, Callable[[], Kind]] = {
    "none": lambda: own(model=language_model, rows=sentences, collate=lambda: padded),
    "LoRA": lambda: adapter("LoraConfig", r=4, **_TARGETS),
    "LoRA, new embeddings": lambda: adapter(
        "LoraConfig", r=4, modules_to_save=["embed_tokens"], ensure_weight_tying=False, **_TARGETS
    ),
    "DoRA": lambda: adapter("LoraConfig", r=4, use_dora=True, **_TARGETS),
    "AdaLoRA": lambda: adapter(
        "AdaLoraConfig",
        init_r=4,
        target_r=2,
        tinit=1,
        tfinal=2,
        deltaT=1,
        total_step=STEPS,
        callbacks=lambda: [AllocateRanks()],
        **_TARGETS,
    ),
    "IA3": lambda: adapter("IA3Config", target_modules=["k_proj", "down_proj"], feedforward_modules=["down_proj"]),
    "LoHa": lambda: adapter("LoHaConfig", r=4, **_TARGETS),
    "LoKr": lambda: adapter("LoKrConfig", r=4, **_TARGETS),
    "OFT": lambda: adapter("OFTConfig", oft_block_size=4, **_TARGETS),
    "VeRA": lambda: adapter("VeraConfig", r=4, **_TARGETS),
    "prefix tuning": lambda: adapter("PrefixTuningConfig", num_virtual_tokens=3),
    "prompt tuning": lambda: adapter("PromptTuningConfig", num_virtual_tokens=3),
    "p-tuning": lambda: adapter("PromptEncoderConfig", num_virtual_tokens=3, encoder_hidden_size=8),
    "layer norms": lambda: adapter("LNTuningConfig", target_modules=["input_layernorm"]),
    "trainable tokens": lambda: adapter(
        "TrainableTokensConfig", token_indices=[3, 4, 5, 6], target_modules=["embed_tokens"]
    ),
}
