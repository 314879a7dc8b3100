"""Defaults that more than one function has, and closed sets of choices that Go does not decide by.

The library has the same defaults: python/tests/_core/test_defaults.py. Its own choices are in ``declared``.
"""

from __future__ import annotations

from typing import Final, Literal

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

Checkpointing = Literal["reentrant", "non_reentrant"]
"""The kinds of gradient checkpointing. A setting may also be True, for the usual kind, or False, for none."""
AttnImplementation = Literal["", "sdpa", "eager", "flash_attention_2"]
"""The implementations of attention, by transformers' names; "" keeps the model's own."""
Estimator = Literal["auto", "trace", "published"]
"""How memory is estimated: by a traced step, by a published formula, or ``"auto"``, by the first of both that works."""
TooLong = Literal["raise", "skip"]
"""What the guard does about a clip for which the memory is too small even when it is alone."""
BadClipPolicy = Literal["report", "raise", "skip"]
"""What the guard does about clips whose loss or gradient is not finite, once it has saved and named them."""
OomSnapshot = Literal["off", "blocks", "history"]
"""What is written when GPU memory runs out: nothing, the allocator's blocks, or those and the allocations before."""
DurationUnit = Literal["samples", "seconds"]
"""The unit of the numbers in a column of lengths."""
Cluster = Literal["ray", "spark"]
"""The engines that scan a dataset on several machines."""
StartMethod = Literal["fork", "spawn", "forkserver"]
"""How a DataLoader starts its worker processes, by multiprocessing's names."""
