"""Plans: options, the planner, its explanation, applying and launching it, and other GPUs compared."""

from .._core import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "._core.modules": ("add_lora",),
        "by_hand": ("HandComparison", "published_scenarios"),
        "environment": ("Applied", "AppliedSetting", "TooLateWarning"),
        "explanation": ("Explanation",),
        "gpu_comparison": ("Comparison", "GPUPlan", "compare_gpus", "gpu_prices"),
        "launch_arguments": ("STRATEGIES", "for_strategy", "layer_classes", "trainer_arguments"),
        "launch_script": ("LaunchFiles", "launch_files"),
        "memory_savings": ("LargestModels", "TrainableModel", "largest_models"),
        "model_preparation": ("TextLogitsCollator", "freeze", "prepare_model", "text_logits_only"),
        "plan_options": ("EvaluationOptions", "EvaluationSettings", "PlanOptions"),
        "plan_record": ("OverrideWarning",),
        "plan_records": (
            "Alternative",
            "Arithmetic",
            "Caution",
            "Decision",
            "MemoryPart",
            "PlannedBucket",
            "PlannedDevice",
            "PlannedMicroBatch",
            "PlannedRunParts",
            "PlannedStepParts",
            "PlannedTimes",
            "Price",
            "RunTime",
            "StepCalibration",
            "StepTime",
            "Unguarded",
        ),
        "planner": ("NotTracedWarning",),
        "selection": ("Selection", "select_clips"),
        "step_calibrations": ("find_step_calibration",),
        "time_estimates": ("estimate_run_time", "estimate_step_time"),
        "training_arguments": ("UnsupportedSettingWarning",),
    },
)
