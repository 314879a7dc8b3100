"""Types of the public names in __init__.py; written by build/stubs.py."""

from .batch_size_search import (
    BatchSizeProbe as BatchSizeProbe,
    BatchSizeSearch as BatchSizeSearch,
    find_max_batch_size as find_max_batch_size,
)
from .batching_costs import (
    BatchingReport as BatchingReport,
    LongestClips as LongestClips,
    compare_batching as compare_batching,
    cost_of_longest as cost_of_longest,
)
from .calibration import calibrate as calibrate
from .estimate import EvaluationMemory as EvaluationMemory, MemoryEstimate as MemoryEstimate
from .hardware import HardwareProfile as HardwareProfile
from .length_table import memory_table as memory_table
from .memory_model import MemoryModel as MemoryModel
from .memory_settings import Calibration as Calibration
from .model_profile import ModelProfile as ModelProfile, known_models as known_models, profile_model as profile_model
from .predict_records import (
    CPU as CPU,
    GPU as GPU,
    BatchingStrategy as BatchingStrategy,
    GPUProcess as GPUProcess,
    LengthBucket as LengthBucket,
    Memory as Memory,
)
from .question import EstimatorWarning as EstimatorWarning, estimate_memory as estimate_memory
from .run_memory import StepsEstimate as StepsEstimate
from .snapshot import SavedSnapshot as SavedSnapshot
from .step_sampler import (
    BatchingWarning as BatchingWarning,
    StepSampler as StepSampler,
    split_by_memory as split_by_memory,
)
