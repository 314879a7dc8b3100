"""Guarded trainings: restarts after failures, exact resuming, and the record of a run."""

from .._base.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "planned_batches": ("PlanNotFollowedWarning",),
        "batch_replay": ("BatchReplay", "ReplayedClip", "replay_batch"),
        "training_check": ("TrainingCheckWarning",),
    },
)
