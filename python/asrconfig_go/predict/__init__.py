"""What a training takes before it runs: hardware, model, memory, batches. See docs/memory.md."""

from .._core import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "batch_size_search": ("BatchSizeProbe", "BatchSizeSearch", "find_max_batch_size"),
        "batching_costs": ("BatchingReport", "LongestClips", "compare_batching", "cost_of_longest"),
        "calibration": ("calibrate",),
        "estimate": ("EvaluationMemory", "MemoryEstimate"),
        "predict_records": ("BatchingStrategy", "CPU", "GPU", "GPUProcess", "LengthBucket", "Memory"),
        "hardware": ("HardwareProfile",),
        "memory_model": ("MemoryModel",),
        "memory_settings": ("Calibration",),
        "model_profile": ("ModelProfile", "known_models", "profile_model"),
        "length_table": ("memory_table",),
        "question": ("EstimatorWarning", "estimate_memory"),
        "run_memory": ("StepsEstimate",),
        "snapshot": ("SavedSnapshot",),
        "step_sampler": ("BatchingWarning", "StepSampler", "split_by_memory"),
    },
)
