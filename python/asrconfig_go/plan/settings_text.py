"""The settings of a plan as a short text."""

from __future__ import annotations

import textwrap

from .._base.input_units import WORDS
from .plan_record import PlanRecord


def _steps(c: PlanRecord) -> list[tuple[str, str]]:
    """How the guard makes a plan's steps, where the Trainer alone would not."""
    if c.micro_batching != "memory":
        return []
    rows = WORDS[c.row_kind].nouns
    cut = f"micro-batches sized by memory ({c.micro_batch_size} of the longest {rows})"
    return [("Steps", f"{c.length_handling} {rows}, {cut} (by manager.attach)")]


def _checkpointing(c: PlanRecord) -> str:
    if not c.gradient_checkpointing:
        return "off"
    layers = f"one of {c.every_n_layers} layers" if c.every_n_layers > 1 else "on"
    return layers + (", offloaded" if c.offload_checkpoints else "")


def _arguments(c: PlanRecord) -> str:
    names = [name for name in ("fp16", "bf16", "tf32") if getattr(c, name)]
    return f" ({', '.join(f'{name}=True' for name in names)})" if names else ""


def config_text(c: PlanRecord) -> str:
    """The "Optimized Settings" block, and the warnings."""
    devices = f" × {c.device_count} GPUs" if c.device_count > 1 else ""
    rows = [
        ("Batch size", f"{c.per_device_train_batch_size}"),
        ("Gradient accumulation", f"{c.gradient_accumulation_steps}"),
        (
            "Effective batch",
            f"{c.effective_batch_size} ({c.per_device_train_batch_size} × {c.gradient_accumulation_steps}{devices})",
        ),
        *_steps(c),
        ("Precision", c.precision + (" + tf32" if c.tf32 else "") + _arguments(c)),
        ("Gradient checkpointing", _checkpointing(c)),
        *([("LoRA", f"adapters of rank {c.lora_rank}")] if c.lora_rank else []),
        ("Learning rate", f"{c.learning_rate:.2g} ({c.lr_scaling} scaling)"),
        ("DataLoader workers", f"{c.dataloader_num_workers}"),
    ]
    lines = ["Optimized Settings", *(f"  {name:<23} {value}" for name, value in rows)]
    for text in c.warnings:
        lines += textwrap.wrap(text, 100, initial_indent="  ! ", subsequent_indent="    ")
    return "\n".join(lines)
