"""How much memory a training takes, before it runs: see docs/memory.md."""

from .._base.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "batch_size_search": ("BatchSizeProbe", "BatchSizeSearch", "find_max_batch_size"),
        "calibration": ("calibrate",),
        "calibration_record": ("Calibration",),
        "estimate": ("EvaluationMemory", "MemoryEstimate"),
        "memory_model": ("MemoryModel",),
        "question": ("EstimatorWarning", "estimate_memory"),
        "run_memory": ("RunEstimate",),
        "snapshot": ("SavedSnapshot",),
        "step_memory": ("StepsEstimate",),
    },
)
