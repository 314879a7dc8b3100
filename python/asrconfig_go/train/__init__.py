"""Guarded trainings: restarts after failures, exact resuming, streams, and the record of a run."""

from .._core import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "batch_replay": ("BatchReplay", "ReplayedClip", "replay_batch"),
        "planned_batches": ("PlanNotFollowedWarning",),
        "stream_batches": ("StreamBatches",),
        "stream_training": ("use_batches", "with_batches"),
        "training_check": ("TrainingCheckWarning",),
    },
)
