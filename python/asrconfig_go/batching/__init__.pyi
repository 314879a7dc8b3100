"""Types of the public names in __init__.py; written by build/stubs.py."""

from .batching_report import (
    BatchingReport as BatchingReport,
    BatchingStrategy as BatchingStrategy,
    LengthBucket as LengthBucket,
    LongestClips as LongestClips,
    compare_batching as compare_batching,
    cost_of_longest as cost_of_longest,
)
from .batching_request import BatchingWarning as BatchingWarning
from .memory_limits import memory_table as memory_table, split_by_memory as split_by_memory
from .step_sampler import StepSampler as StepSampler
from .trainer_batches import use_batches as use_batches, with_batches as with_batches
