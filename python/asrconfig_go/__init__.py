"""Plans, guards and watches the fine-tuning of speech models with Hugging Face Trainer.

>>> config, manager = create_optimal_config("clips/", "facebook/wav2vec2-xls-r-300m", gpu="T4")
>>> args = config.to_training_arguments("out")
>>> trainer = Trainer(model, args, ..., callbacks=[manager.callback()])
>>> manager.train(trainer)
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

# Which module has which public name. A name is looked up when it is first used, so that importing the package takes
# milliseconds, and a forked worker that only needs one class does not build all others. Types: __init__.pyi.
_NAMES = {
    "_base.errors": (
        "AsrConfigError",
        "CorruptFileError",
        "EmptyDatasetError",
        "ForkedProcessError",
        "InfeasiblePlanError",
        "InternalError",
        "InvalidArgumentError",
        "LibraryError",
        "LibraryNotLoadedError",
        "NotFoundError",
        "PoisonedLibraryError",
        "ScanCancelledError",
        "UnsupportedError",
        "VersionMismatchError",
    ),
    "apply.applied_settings": ("Applied", "AppliedSetting", "TooLateWarning"),
    "batching": (
        "BatchingReport",
        "BatchingStrategy",
        "BatchingWarning",
        "LengthBucket",
        "LongestClips",
        "StepSampler",
        "compare_batching",
        "cost_of_longest",
        "split_by_memory",
        "memory_table",
        "use_batches",
        "with_batches",
    ),
    "benchmark": ("BenchmarkResult", "benchmark_training"),
    "monitor.memory_callback": ("AdaptiveMemoryCallback",),
    "compare.gpu_comparison": ("compare_gpus", "estimate_step_time", "gpu_prices", "largest_models"),
    "compare.comparison_records": ("Comparison", "LargestModels", "StepTime"),
    "config": ("Decision", "TrainingConfig"),
    "data.scan": ("Clip", "DatasetProfile", "ScanResult", "scan_audio"),
    "explain": ("Caution", "Explanation"),
    "guard.batch_size_search": ("BatchSizeSearch", "find_max_batch_size"),
    "machine.hardware": ("GPU", "HardwareProfile"),
    "data.labels": ("InfeasiblePair", "LabelReport", "check_labels"),
    "data.durations": ("BadAudioWarning", "add_durations"),
    "loading.loader_rate": ("LoaderRate", "measure_loader"),
    "manager": ("ASRConfigManager",),
    "memory": (
        "Calibration",
        "EstimatorWarning",
        "EvaluationMemory",
        "MemoryEstimate",
        "MemoryModel",
        "RunEstimate",
        "StepsEstimate",
        "calibrate",
        "estimate_memory",
    ),
    "machine.model": ("ModelProfile", "known_models", "profile_model"),
    "monitor.memory_monitor": ("MemoryMonitor",),
    "optimal": ("create_optimal_config",),
    "plan.plan_options": ("PlanOptions",),
    "apply.model_preparation": ("prepare_model",),
    "recipe": ("FineTuneResult", "SpeechData", "fine_tune", "load_speech"),
    "plan.selection": ("Selection", "clip_pieces", "select_clips"),
    "compare.step_calibration": ("find_step_calibration",),
    "apply.training_arguments": ("UnsupportedSettingWarning",),
    "guard.training_report": ("GuardEvent", "Restart", "TrainingReport"),
    "monitor": ("AlertReporter", "lightning_callback"),
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    """Import what has the public name, or the version of the installed package."""
    if name == "__version__":
        from ._base.native import package_version

        return package_version()
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_MODULE_OF[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Public names, looked up or not, for completion in notebooks."""
    return sorted({*globals(), *__all__})
