"""Whether other processes or GPUs take part in a Trainer's training."""

from __future__ import annotations

from typing import Any


def sharded(trainer: Any) -> bool:
    """Whether processes hold parts of one model."""
    return bool(
        trainer.is_deepspeed_enabled
        or trainer.is_fsdp_enabled
        or getattr(trainer, "is_distributed_loading_by_transformers", False)
    )


def single_process(trainer: Any) -> bool:
    """Whether no other process takes part in the training."""
    return bool(trainer.args.world_size == 1 and not sharded(trainer))


def cannot_retry(trainer: Any) -> bool:
    """Whether forward and backward use collectives or several GPUs, so that one process cannot retry a step alone."""
    return sharded(trainer) or trainer.args.n_gpu > 1
