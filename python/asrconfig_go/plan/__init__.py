"""Plans: what is asked for, the records of a plan, the planner, and which clips it trains on."""

from .._base.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "plan_options": ("PlanOptions",),
        "plan_parts": ("Alternative", "Decision", "MemoryPart", "PlannedBucket", "PlannedDevice", "PlannedTimes"),
        "planner": ("NotTracedWarning",),
        "selection": ("Selection", "clip_pieces", "select_clips"),
    },
)
