"""Plans made by hand, for tests that need no library."""

from __future__ import annotations

import json
from typing import Any

from asrconfig_go import TrainingConfig

PLAN: dict[str, Any] = {
    "schema_version": 2,
    "policy": "published",
    "preset": "balanced",
    "target_batch_size": 32,
    "device_count": 1,
    "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 4,
    "per_device_eval_batch_size": 16,
    "fp16": False,
    "bf16": False,
    "tf32": False,
    "gradient_checkpointing": False,
    "every_n_layers": 1,
    "offload_checkpoints": False,
    "torch_compile": False,
    "cudnn_benchmark": True,
    "cudnn_attention": True,
    "deterministic": False,
    "dataloader_num_workers": 0,
    "dataloader_prefetch_factor": None,
    "dataloader_pin_memory": False,
    "dataloader_persistent_workers": False,
    "streaming": False,
    "cache_dataset": True,
    "chunk_length_s": None,
    "group_by_length": False,
    "learning_rate": 4e-5,
    "lr_scaling": "sqrt",
    "num_train_epochs": 5.0,
    "warmup_ratio": 0.1,
    "weight_decay": 0.01,
    "max_grad_norm": 1.0,
    "optimizer": "adamw_torch",
    "seed": 7,
    "safety_margin": 0.85,
    "gpu_name": "",
    "gpu_memory_bytes": None,
    "model_memory_bytes": 1_000_000,
    "predicted_bytes": 2_000_000,
    "row_kind": "clips",
    "micro_batching": "fixed",
    "micro_batch_overhead_s": 4.0,
    "micro_batch_host_s": 0.0,
    "attn_implementation": "",
    "freeze_feature_encoder": False,
    "lora_rank": 0,
    "alloc_conf": "",
    "budget_bytes": 0,
    **dict.fromkeys(("max_length_s", "eval_accumulation_steps", "eval_steps", "save_steps", "eval_samples")),
    **dict.fromkeys(("predicted_high_bytes", "unguarded", "times", "arithmetic", "by_hand")),
    **dict.fromkeys(("length_buckets", "micro_batches", "devices", "memory_parts"), ()),
    **dict.fromkeys(("alternatives", "decisions", "warnings"), ()),
}

UNGUARDED: dict[str, Any] = {
    "per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "gradient_checkpointing": True,
    "every_n_layers": 1, "offload_checkpoints": False, "micro_batch_size": 4, "predicted_bytes": 1_500_000,
    "times_longer": 1.2,
}  # fmt: skip
"""Of a plan whose steps of eight clips the guard splits, and recomputes nothing."""


def make_plan(**changes: Any) -> TrainingConfig:
    """A plan for a CPU, with ``changes``."""
    plan = {**PLAN, **changes}
    of_the_batch = {
        "micro_batch_size": plan["per_device_train_batch_size"],
        "length_handling": "grouped" if plan["group_by_length"] else "random",
        "distributed": "none" if plan["device_count"] == 1 else "ddp",
    }
    return TrainingConfig.from_dict(json.loads(json.dumps({**of_the_batch, **plan})))
