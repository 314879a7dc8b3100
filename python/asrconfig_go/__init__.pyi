"""Types of the public names in __init__.py; written by build/stubs.py."""

from .audio import measure_loader as measure_loader
from .benchmark import benchmark_training as benchmark_training
from .config import TrainingConfig as TrainingConfig
from .data import (
    DatasetProfile as DatasetProfile,
    add_durations as add_durations,
    check_labels as check_labels,
    scan_audio as scan_audio,
)
from .errors import AsrConfigError as AsrConfigError
from .manager import ASRConfigManager as ASRConfigManager
from .optimal import create_optimal_config as create_optimal_config
from .plan import (
    PlanOptions as PlanOptions,
    compare_gpus as compare_gpus,
    estimate_run_time as estimate_run_time,
    estimate_step_time as estimate_step_time,
    largest_models as largest_models,
    prepare_model as prepare_model,
    select_clips as select_clips,
)
from .predict import (
    HardwareProfile as HardwareProfile,
    MemoryModel as MemoryModel,
    ModelProfile as ModelProfile,
    StepSampler as StepSampler,
    compare_batching as compare_batching,
    estimate_memory as estimate_memory,
    find_max_batch_size as find_max_batch_size,
    known_models as known_models,
    profile_model as profile_model,
)
from .recipe import fine_tune as fine_tune
from .watch import AdaptiveMemoryCallback as AdaptiveMemoryCallback, MemoryMonitor as MemoryMonitor

__version__: str
