"""A wav2vec2 with CTC that trains in a second on the stand-in CUDA runtime, and is large enough to be predicted."""

from __future__ import annotations

from typing import Any

import torch
from transformers import Wav2Vec2Config, Wav2Vec2ForCTC

from asrconfig_go.predict import MemoryModel

BATCH = 4
SECONDS = 5.0
LABELS = 40
VOCABULARY = 32


def small_wav2vec2(**config: Any) -> Any:
    torch.manual_seed(0)
    sizes = {
        "hidden_size": 256,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "intermediate_size": 1024,
        "conv_dim": (128,) * 7,
        "num_conv_pos_embeddings": 32,
        "num_conv_pos_embedding_groups": 4,
    }
    return Wav2Vec2ForCTC(
        Wav2Vec2Config(
            **{**sizes, "vocab_size": VOCABULARY, "layerdrop": 0.0, "mask_time_prob": 0.0, "mask_feature_prob": 0.0}
            | config
        )
    )


def predicted() -> dict[str, Any]:
    """The peaks that a trace without a GPU predicts for ``CtcRun`` on a T4."""
    settings: dict[str, Any] = {"precision": "fp16", "optimizer": "adamw_torch_fused", "gpu": "T4", "allocator": ""}
    with MemoryModel.trace(small_wav2vec2(), **settings, progress=False) as memory:
        found = memory.estimate(BATCH, SECONDS, LABELS, timeline=0)
    return {
        "allocated": found.peak_allocated,
        "reserved": found.peak_reserved,
        "gpus": torch.cuda.device_count(),
    }


class CtcRun:
    """A training loop in fp16 on cuda:0."""

    def __init__(self, model: Any, checkpointing: bool = False) -> None:
        if checkpointing:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        self.model = model.to("cuda:0").train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), fused=True)
        self.scaler = torch.amp.GradScaler("cuda")

    def step(self) -> None:
        samples = int(SECONDS * 16_000)
        batch = {
            "input_values": torch.randn(BATCH, samples),
            "labels": torch.randint(1, VOCABULARY, (BATCH, LABELS)),
        }
        batch = {name: value.to("cuda:0") for name, value in batch.items()}
        with torch.autocast("cuda", dtype=torch.float16):
            loss = self.model(**batch).loss
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)

    def optimizer_steps(self) -> list[float]:
        return sorted({float(state["step"]) for state in self.optimizer.state.values()})


class Clips(torch.utils.data.Dataset):  # type: ignore[misc]
    """Clips of three seconds."""

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"input_values": torch.randn(48_000), "labels": torch.randint(1, VOCABULARY, (20,))}


def guarded_trainer(output: str, oom_snapshot: Any, memory_limit_bytes: int | None = None) -> tuple[Any, Any]:
    """A Trainer of two steps of eight clips, with its guard. Losses mean nothing here, so their rule is given.

    With ``memory_limit_bytes`` the guard predicts the memory, and takes this for what there is.
    """
    from transformers import Trainer, TrainingArguments

    from asrconfig_go.guard import attach
    from asrconfig_go.guard.micro_batches import traced_for

    arguments = TrainingArguments(
        output, per_device_train_batch_size=8, max_steps=2, report_to=[], save_strategy="no", disable_tqdm=True,
        max_grad_norm=0.0, dataloader_pin_memory=False,
    )  # fmt: skip
    trainer = Trainer(small_wav2vec2(), arguments, train_dataset=Clips())
    options: dict[str, Any] = {}
    if memory_limit_bytes is not None:
        options = {"memory": traced_for(trainer, "T4"), "memory_limit_bytes": memory_limit_bytes}
    return trainer, attach(trainer, rule="mean", oom_snapshot=oom_snapshot, **options)
