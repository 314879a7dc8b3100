"""Plans, guards and watches the fine-tuning of speech models with Hugging Face Trainer.

>>> config, manager = create_optimal_config("clips/", "facebook/wav2vec2-xls-r-300m", gpu="T4")
>>> args = config.to_training_arguments("out")
>>> trainer = Trainer(model, args, ..., callbacks=[manager.callback()])
>>> manager.train(trainer)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._errors import (
    AsrConfigError,
    CorruptFileError,
    EmptyDatasetError,
    ForkedProcessError,
    InfeasiblePlanError,
    InternalError,
    InvalidArgumentError,
    LibraryError,
    LibraryNotLoadedError,
    NotFoundError,
    PoisonedLibraryError,
    ScanCancelledError,
    UnsupportedError,
    VersionMismatchError,
)
from .applied import Applied, AppliedSetting, TooLateWarning
from .batching import (
    BatchingReport,
    BatchingStrategy,
    BatchingWarning,
    LengthBucket,
    LongestClips,
    StepSampler,
    compare_batching,
    cost_of_longest,
    cut_by_memory,
    memory_table,
    use_batches,
    with_batches,
)
from .compare import compare_gpus, estimate_step_time, gpu_prices, largest_models
from .compare_records import Comparison, LargestModels, StepTime
from .config import Decision, TrainingConfig
from .dataset import Clip, DatasetProfile, ScanResult, scan_audio
from .hardware import GPU, HardwareProfile
from .labels import InfeasiblePair, LabelReport, check_labels
from .lengths import BadAudioWarning, add_durations
from .loader_rate import LoaderRate, measure_loader
from .manager import ASRConfigManager, PlanOptions, create_optimal_config
from .model import ModelProfile, known_models, profile_model
from .monitor import MemoryMonitor
from .prepare import prepare_model
from .selection import Selection, clip_pieces, select_clips
from .step_calibration import find_step_calibration
from .training_arguments import UnsupportedSettingWarning
from .training_report import GuardEvent, Restart, TrainingReport
from .watching import AlertNews, lightning_callback

if TYPE_CHECKING:
    from .callback import AdaptiveMemoryCallback
    from .explain import Caution, Explanation
    from .guard.search import BatchSizeSearch, find_max_batch_size
    from .memory import (
        Calibration,
        EstimatorWarning,
        EvaluationMemory,
        MemoryEstimate,
        MemoryModel,
        RunEstimate,
        StepsEstimate,
        calibrate,
        estimate_memory,
    )

__all__ = [
    "GPU",
    "ASRConfigManager",
    "AdaptiveMemoryCallback",
    "AlertNews",
    "Applied",
    "AppliedSetting",
    "AsrConfigError",
    "BadAudioWarning",
    "BatchSizeSearch",
    "BatchingReport",
    "BatchingStrategy",
    "BatchingWarning",
    "Calibration",
    "Caution",
    "Clip",
    "Comparison",
    "CorruptFileError",
    "DatasetProfile",
    "Decision",
    "EmptyDatasetError",
    "EstimatorWarning",
    "EvaluationMemory",
    "Explanation",
    "ForkedProcessError",
    "GuardEvent",
    "HardwareProfile",
    "InfeasiblePair",
    "InfeasiblePlanError",
    "InternalError",
    "InvalidArgumentError",
    "LabelReport",
    "LargestModels",
    "LengthBucket",
    "LibraryError",
    "LibraryNotLoadedError",
    "LoaderRate",
    "LongestClips",
    "MemoryEstimate",
    "MemoryModel",
    "MemoryMonitor",
    "ModelProfile",
    "NotFoundError",
    "PlanOptions",
    "PoisonedLibraryError",
    "Restart",
    "RunEstimate",
    "ScanCancelledError",
    "ScanResult",
    "Selection",
    "StepSampler",
    "StepTime",
    "StepsEstimate",
    "TooLateWarning",
    "TrainingConfig",
    "TrainingReport",
    "UnsupportedError",
    "UnsupportedSettingWarning",
    "VersionMismatchError",
    "add_durations",
    "calibrate",
    "check_labels",
    "clip_pieces",
    "compare_batching",
    "compare_gpus",
    "cost_of_longest",
    "create_optimal_config",
    "cut_by_memory",
    "estimate_memory",
    "estimate_step_time",
    "find_max_batch_size",
    "find_step_calibration",
    "gpu_prices",
    "known_models",
    "largest_models",
    "lightning_callback",
    "measure_loader",
    "memory_table",
    "prepare_model",
    "profile_model",
    "scan_audio",
    "select_clips",
    "use_batches",
    "with_batches",
]


def __getattr__(name: str) -> Any:
    """Names that cost an import: the callback's base class, torch, the memory model, explanations, the version."""
    if name == "AdaptiveMemoryCallback":
        from .callback import AdaptiveMemoryCallback

        return AdaptiveMemoryCallback
    if name in ("BatchSizeSearch", "find_max_batch_size"):
        from .guard import search

        return getattr(search, name)
    if name in ("Caution", "Explanation"):
        from . import explain

        return getattr(explain, name)
    if name in __all__:
        from . import memory

        return getattr(memory, name)
    if name == "__version__":
        from importlib.metadata import version

        return version("asrconfig-go")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
