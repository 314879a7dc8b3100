"""Training steps that survive running out of GPU memory without changing the mathematics of the run."""

from .._core import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "attachment": ("attach", "guard_of"),
        "bad_clips": ("BadClipError",),
        "guard": ("Guard",),
        "own_loop": ("GuardedStep", "guarded_step"),
        "training_report": ("BadBatch", "BadClip", "Change", "GuardEvent", "Restart", "TrainingReport"),
    },
)
