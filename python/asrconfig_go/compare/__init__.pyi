"""Types of the public names in __init__.py; written by build/stubs.py."""

from .comparison_records import (
    Comparison as Comparison,
    GPUPlan as GPUPlan,
    LargestModels as LargestModels,
    Price as Price,
    RunTime as RunTime,
    StepCalibration as StepCalibration,
    StepTime as StepTime,
    TrainableModel as TrainableModel,
)
from .gpu_comparison import compare_gpus as compare_gpus, gpu_prices as gpu_prices
from .run_time import estimate_run_time as estimate_run_time, estimate_step_time as estimate_step_time
from .step_calibration import find_step_calibration as find_step_calibration
from .trainable_models import largest_models as largest_models
