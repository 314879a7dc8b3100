"""Types of the public names in __init__.py; written by build/stubs.py."""

from .._core.modules import add_lora as add_lora
from .by_hand import HandComparison as HandComparison, published_scenarios as published_scenarios
from .environment import Applied as Applied, AppliedSetting as AppliedSetting, TooLateWarning as TooLateWarning
from .explanation import Explanation as Explanation
from .gpu_comparison import (
    Comparison as Comparison,
    GPUPlan as GPUPlan,
    compare_gpus as compare_gpus,
    gpu_prices as gpu_prices,
)
from .launch_arguments import (
    STRATEGIES as STRATEGIES,
    for_strategy as for_strategy,
    layer_classes as layer_classes,
    trainer_arguments as trainer_arguments,
)
from .launch_script import LaunchFiles as LaunchFiles, launch_files as launch_files
from .memory_savings import (
    LargestModels as LargestModels,
    TrainableModel as TrainableModel,
    largest_models as largest_models,
)
from .model_preparation import (
    TextLogitsCollator as TextLogitsCollator,
    freeze as freeze,
    prepare_model as prepare_model,
    text_logits_only as text_logits_only,
)
from .plan_options import (
    EvaluationOptions as EvaluationOptions,
    EvaluationSettings as EvaluationSettings,
    PlanOptions as PlanOptions,
)
from .plan_record import OverrideWarning as OverrideWarning
from .plan_records import (
    Alternative as Alternative,
    Arithmetic as Arithmetic,
    Caution as Caution,
    Decision as Decision,
    MemoryPart as MemoryPart,
    PlannedBucket as PlannedBucket,
    PlannedDevice as PlannedDevice,
    PlannedMicroBatch as PlannedMicroBatch,
    PlannedRunParts as PlannedRunParts,
    PlannedStepParts as PlannedStepParts,
    PlannedTimes as PlannedTimes,
    Price as Price,
    RunTime as RunTime,
    StepCalibration as StepCalibration,
    StepTime as StepTime,
    Unguarded as Unguarded,
)
from .planner import NotTracedWarning as NotTracedWarning
from .selection import Selection as Selection, select_clips as select_clips
from .step_calibrations import find_step_calibration as find_step_calibration
from .time_estimates import estimate_run_time as estimate_run_time, estimate_step_time as estimate_step_time
from .training_arguments import UnsupportedSettingWarning as UnsupportedSettingWarning
