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
from .config import Decision, TrainingConfig
from .dataset import Clip, DatasetProfile, ScanResult, scan_audio
from .hardware import GPU, HardwareProfile
from .labels import InfeasiblePair, LabelReport, check_labels
from .lengths import BadAudioWarning, add_durations
from .manager import ASRConfigManager, PlanOptions, create_optimal_config
from .model import ModelProfile, known_models, profile_model
from .monitor import MemoryMonitor
from .training_arguments import UnsupportedSettingWarning

if TYPE_CHECKING:
    from .callback import AdaptiveMemoryCallback
    from .memory import (
        Calibration,
        EstimatorWarning,
        EvaluationMemory,
        MemoryEstimate,
        MemoryModel,
        RunEstimate,
        calibrate,
        estimate_memory,
    )

__all__ = [
    "GPU",
    "ASRConfigManager",
    "AdaptiveMemoryCallback",
    "AsrConfigError",
    "BadAudioWarning",
    "Calibration",
    "Clip",
    "CorruptFileError",
    "DatasetProfile",
    "Decision",
    "EmptyDatasetError",
    "EstimatorWarning",
    "EvaluationMemory",
    "ForkedProcessError",
    "HardwareProfile",
    "InfeasiblePair",
    "InfeasiblePlanError",
    "InternalError",
    "InvalidArgumentError",
    "LabelReport",
    "LibraryError",
    "LibraryNotLoadedError",
    "MemoryEstimate",
    "MemoryModel",
    "MemoryMonitor",
    "ModelProfile",
    "NotFoundError",
    "PlanOptions",
    "PoisonedLibraryError",
    "RunEstimate",
    "ScanCancelledError",
    "ScanResult",
    "TrainingConfig",
    "UnsupportedError",
    "UnsupportedSettingWarning",
    "VersionMismatchError",
    "add_durations",
    "calibrate",
    "check_labels",
    "create_optimal_config",
    "estimate_memory",
    "known_models",
    "profile_model",
    "scan_audio",
]


def __getattr__(name: str) -> Any:
    """Names that cost an import: the callback's base class, the memory model, the version in the metadata."""
    if name == "AdaptiveMemoryCallback":
        from .callback import AdaptiveMemoryCallback

        return AdaptiveMemoryCallback
    if name in __all__:
        from . import memory

        return getattr(memory, name)
    if name == "__version__":
        from importlib.metadata import version

        return version("asrconfig-go")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
