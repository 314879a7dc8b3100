"""Which clips make up an optimizer step, and what that costs: see docs/batching.md."""

from .batching_report import (
    BatchingReport,
    BatchingStrategy,
    LengthBucket,
    LongestClips,
    compare_batching,
    cost_of_longest,
)
from .batching_request import BatchingWarning
from .memory_table import memory_table, split_by_memory
from .step_sampler import StepSampler
from .trainer_batches import use_batches, with_batches

__all__ = [
    "BatchingReport",
    "BatchingStrategy",
    "BatchingWarning",
    "LengthBucket",
    "LongestClips",
    "StepSampler",
    "compare_batching",
    "cost_of_longest",
    "memory_table",
    "split_by_memory",
    "use_batches",
    "with_batches",
]
