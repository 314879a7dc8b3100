"""Which clips make up an optimizer step, and what that costs: see docs/batching.md."""

from .report import BatchingReport, BatchingStrategy, LengthBucket, LongestClips, compare_batching, cost_of_longest
from .request import BatchingWarning
from .sampler import StepSampler
from .table import cut_by_memory, memory_table
from .training import use_batches, with_batches

__all__ = [
    "BatchingReport",
    "BatchingStrategy",
    "BatchingWarning",
    "LengthBucket",
    "LongestClips",
    "StepSampler",
    "compare_batching",
    "cost_of_longest",
    "cut_by_memory",
    "memory_table",
    "use_batches",
    "with_batches",
]
