"""Plans, guards and watches the fine-tuning of speech models with Hugging Face Trainer.

>>> config, manager = create_optimal_config("clips/", "facebook/wav2vec2-xls-r-300m", gpu="T4")
>>> args = config.to_training_arguments("out")
>>> trainer = Trainer(model, args, ..., callbacks=[manager.callback()])
>>> manager.train(trainer)
"""

from __future__ import annotations

from typing import Any

from ._core import lazy_names

_look_up, __dir__, __all__ = lazy_names(
    __name__,
    {
        "audio": ("measure_loader",),
        "benchmark": ("benchmark_training",),
        "config": ("TrainingConfig",),
        "data": ("DatasetProfile", "add_durations", "check_labels", "scan_audio"),
        "errors": ("AsrConfigError",),
        "manager": ("ASRConfigManager",),
        "optimal": ("create_optimal_config",),
        "plan": (
            "PlanOptions",
            "compare_gpus",
            "estimate_run_time",
            "estimate_step_time",
            "largest_models",
            "prepare_model",
            "select_clips",
        ),
        "predict": (
            "HardwareProfile",
            "MemoryModel",
            "ModelProfile",
            "StepSampler",
            "compare_batching",
            "estimate_memory",
            "find_max_batch_size",
            "known_models",
            "profile_model",
        ),
        "recipe": ("fine_tune",),
        "watch": ("AdaptiveMemoryCallback", "MemoryMonitor"),
    },
)


def __getattr__(name: str) -> Any:
    """Look a public name up, or the version of the installed package."""
    if name == "__version__":
        from ._core.native import package_version

        return package_version()
    return _look_up(name)
