"""One training on many GPUs, and the largest models for one."""

from .._base.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "comparison_records": (
            "Comparison",
            "GPUPlan",
            "LargestModels",
            "Price",
            "StepCalibration",
            "RunTime",
            "StepTime",
            "TrainableModel",
        ),
        "gpu_comparison": ("compare_gpus", "gpu_prices"),
        "run_time": ("estimate_run_time", "estimate_step_time"),
        "step_calibration": ("find_step_calibration",),
        "trainable_models": ("largest_models",),
    },
)
