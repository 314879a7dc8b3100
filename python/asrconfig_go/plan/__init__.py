"""Plans: options, records, the planner, and the selection of clips."""

from .._base.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "overrides": ("OverrideWarning",),
        "plan_options": ("EvaluationOptions", "EvaluationSettings", "PlanOptions"),
        "plan_parts": (
            "Alternative",
            "Arithmetic",
            "Decision",
            "MemoryPart",
            "PlannedBucket",
            "PlannedDevice",
            "PlannedTimes",
            "PlannedRunParts",
            "PlannedStepParts",
        ),
        "planner": ("NotTracedWarning",),
        "selection": ("Selection", "select_clips"),
    },
)
