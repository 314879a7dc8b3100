"""Types of the public names in __init__.py; written by build/stubs.py."""

from .overrides import OverrideWarning as OverrideWarning
from .plan_options import (
    EvaluationOptions as EvaluationOptions,
    EvaluationSettings as EvaluationSettings,
    PlanOptions as PlanOptions,
)
from .plan_parts import (
    Alternative as Alternative,
    Arithmetic as Arithmetic,
    Decision as Decision,
    MemoryPart as MemoryPart,
    PlannedBucket as PlannedBucket,
    PlannedDevice as PlannedDevice,
    PlannedRunParts as PlannedRunParts,
    PlannedStepParts as PlannedStepParts,
    PlannedTimes as PlannedTimes,
)
from .planner import NotTracedWarning as NotTracedWarning
from .selection import Selection as Selection, select_clips as select_clips
