"""Training steps that survive running out of GPU memory without changing the mathematics of the run."""

from .guard import Guard, attach, guard_of
from .training_report import GuardEvent

__all__ = ["Guard", "GuardEvent", "attach", "guard_of"]
