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
"""Of a memory estimate: what every GPU with tensor cores has."""
ACCUMULATION: Final = 1
"""Micro-batches of an optimizer step whose memory is asked for."""
TRACED_MICRO_BATCHES: Final = 3
"""Of a step that a plan traces: the first, one with gradients beside it, the last; a further one repeats the third."""
ALLOCATOR: Final = "expandable_segments:True"
"""What a plan sets PYTORCH_CUDA_ALLOC_CONF to, and so what a question about memory is simulated with."""
LORA_RANK: Final = 32
"""Of adapters, where they are asked about without a rank."""
EPOCHS: Final = 3.0
"""Of a training whose length is not given."""
MEAN_S: Final = 8.0
"""Of clips whose durations are not known."""
TOKENS: Final = 128
"""Of the longest text, where texts are not measured: what guides pad them to."""
LOADER_WORKERS: Final = 4
"""Of each GPU, where none were measured."""
INTERVAL_MS: Final = 100.0
"""Between two samples of a monitor."""
MAX_RETRIES: Final = 3
"""Restarts of a training."""
