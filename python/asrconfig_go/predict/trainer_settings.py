"""What a Trainer's arguments and its model say of the settings that decide on memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._core.modules import checkpointing_depth, checkpoints, offloads_checkpoints

if TYPE_CHECKING:
    from torch import nn
    from transformers import TrainingArguments


def training_settings(args: TrainingArguments, model: nn.Module) -> dict[str, Any]:
    """The settings of a trainer with these arguments and this model, as ``MemoryModel.trace`` takes them.

    Which layers are recomputed is read from a prepared model, else from the arguments.
    """
    depth, offloads = checkpointing_depth(model), offloads_checkpoints(model)
    if depth is None:
        options: dict[str, Any] = {}
        for kind in ("gradient", "activation") if recomputes(args) else ():  # the first: before transformers 5
            options |= getattr(args, f"{kind}_checkpointing_kwargs", None) or {}
        depth, offloads = int(options.get("every_n_layers", 1)), bool(options.get("offload"))
    return {
        "precision": "bf16" if args.bf16 else "fp16" if args.fp16 else "fp32",
        "gradient_checkpointing": recomputes(args) or checkpoints(model),
        "every_n_layers": depth,
        "offload_checkpoints": offloads,
        "optimizer": str(getattr(args.optim, "value", args.optim)),
        "accumulation": args.gradient_accumulation_steps,
        "devices": device_count(args),
    }


def device_count(args: TrainingArguments) -> int:
    """The GPUs, or processes on the CPU, that share an optimizer step."""
    return max(1, int(args.n_gpu)) * int(args.world_size)


def recomputes(args: TrainingArguments) -> bool:
    """Whether a trainer's arguments ask for checkpointing."""
    return bool(getattr(args, "activation_checkpointing", False) or getattr(args, "gradient_checkpointing", False))
