"""Which clips make up an optimizer step, and what that costs: see docs/batching.md."""

from .._base.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "batching_report": (
            "BatchingReport",
            "BatchingStrategy",
            "LengthBucket",
            "LongestClips",
            "compare_batching",
            "cost_of_longest",
        ),
        "batching_request": ("BatchingWarning",),
        "memory_limits": ("split_by_memory", "memory_table"),
        "step_sampler": ("StepSampler",),
        "trainer_batches": ("use_batches", "with_batches"),
    },
)
