"""Defaults that more than one function has. The library has the same: python/tests/_core/test_defaults.py."""

from __future__ import annotations

from typing import Final

SAFETY_MARGIN: Final = 0.85
"""Share of GPU memory that a plan may use; the rest is for fragmentation and other processes."""
TARGET_BATCH_SIZE: Final = 32
"""Clips of an optimizer step."""
SAMPLING_RATE: Final = 16_000
"""Hertz; every speech model of transformers is trained at it."""
OPTIMIZER: Final = "adamw_torch_fused"
"""The Trainer's default since transformers 5."""
PRECISION: Final = "fp16"
"""The precision of a memory estimate: the one that every GPU with tensor cores has."""
ACCUMULATION: Final = 1
"""Micro-batches of an optimizer step in a memory estimate."""
TRACED_MICRO_BATCHES: Final = 3
"""Micro-batches of a traced step: the first, one with gradients in memory, the last; more would repeat the third."""
ALLOCATOR: Final = "expandable_segments:True"
"""The PYTORCH_CUDA_ALLOC_CONF of a plan, with which memory is therefore simulated."""
EPOCHS: Final = 3.0
"""Epochs of a training when none are passed."""
MEAN_S: Final = 8.0
"""Mean duration in seconds of clips whose durations are unknown."""
TOKENS: Final = 128
"""Tokens of the longest text when texts are not measured: guides pad to this length."""
LOADER_WORKERS: Final = 4
"""Loader workers of each GPU when none were measured."""
INTERVAL_MS: Final = 100.0
"""Milliseconds between two readings of a monitor."""
MAX_RETRIES: Final = 3
"""Restarts of a training."""
