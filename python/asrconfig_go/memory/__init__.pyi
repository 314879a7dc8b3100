"""Types of the public names in __init__.py; written by build/stubs.py."""

from .batch_size_search import (
    BatchSizeProbe as BatchSizeProbe,
    BatchSizeSearch as BatchSizeSearch,
    find_max_batch_size as find_max_batch_size,
)
from .calibration import calibrate as calibrate
from .calibration_record import Calibration as Calibration
from .estimate import EvaluationMemory as EvaluationMemory, MemoryEstimate as MemoryEstimate
from .memory_model import MemoryModel as MemoryModel
from .question import EstimatorWarning as EstimatorWarning, estimate_memory as estimate_memory
from .run_memory import RunEstimate as RunEstimate
from .snapshot import SavedSnapshot as SavedSnapshot
from .step_memory import StepsEstimate as StepsEstimate
