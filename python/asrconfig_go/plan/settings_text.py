"""The settings of a plan as a short text."""

from __future__ import annotations

import textwrap

from .._base.input_units import WORDS
from .plan_record import PlanRecord


def _checkpointing(c: PlanRecord) -> str:
    if not c.gradient_checkpointing:
        return "off"
    layers = f"one of {c.every_n_layers} layers" if c.every_n_layers > 1 else "on"
    return layers + (", offloaded" if c.offload_checkpoints else "")


def config_text(c: PlanRecord) -> str:
    """The "Optimized Settings" block, and the warnings."""
    step = f"{c.per_device_train_batch_size} × {c.gradient_accumulation_steps}"
    step += f" × {c.device_count} GPUs" if c.device_count > 1 else ""
    nouns = WORDS[c.row_kind].nouns
    split = f"micro-batches sized by memory ({c.micro_batch_size} of the longest {nouns})"
    steps = [("Steps", f"{c.length_handling} {nouns}, {split} (by manager.attach)")]
    arguments = ", ".join(f"{name}=True" for name in ("fp16", "bf16", "tf32") if getattr(c, name))
    rows = [
        ("Batch size", f"{c.per_device_train_batch_size}"),
        ("Gradient accumulation", f"{c.gradient_accumulation_steps}"),
        ("Effective batch", f"{c.effective_batch_size} ({step})"),
        *(steps if c.micro_batching == "memory" else []),
        ("Precision", c.precision + (" + tf32" if c.tf32 else "") + (f" ({arguments})" if arguments else "")),
        ("Gradient checkpointing", _checkpointing(c)),
        *([("LoRA", f"adapters of rank {c.lora_rank}")] if c.lora_rank else []),
        ("Learning rate", f"{c.learning_rate:.2g} ({c.lr_scaling} scaling)"),
        ("DataLoader workers", f"{c.dataloader_num_workers}"),
    ]
    lines = ["Optimized Settings", *(f"  {name:<23} {value}" for name, value in rows)]
    for text in c.warnings:
        lines += textwrap.wrap(text, 100, initial_indent="  ! ", subsequent_indent="    ")
    return "\n".join(lines)
