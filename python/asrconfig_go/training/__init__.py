"""Whole trainings: restarts after failures, exact resuming, and what is kept of a run for that."""

from .._base.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "planned_batches": ("PlanNotFollowedWarning",),
    },
)
