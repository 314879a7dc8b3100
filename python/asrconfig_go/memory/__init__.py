"""How much memory a training takes, before it runs: see docs/memory-model.md."""

from .calibration import calibrate
from .calibration_record import Calibration
from .estimate import EvaluationMemory, MemoryEstimate
from .memory_model import MemoryModel
from .question import EstimatorWarning, estimate_memory
from .run_memory import RunEstimate
from .step_memory import StepsEstimate

__all__ = [
    "Calibration",
    "EstimatorWarning",
    "EvaluationMemory",
    "MemoryEstimate",
    "MemoryModel",
    "RunEstimate",
    "StepsEstimate",
    "calibrate",
    "estimate_memory",
]
