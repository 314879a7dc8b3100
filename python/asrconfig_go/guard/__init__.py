"""Training steps that survive running out of GPU memory without changing the mathematics of the run."""

from ..training_report import GuardEvent
from .guard import Guard, attach, guard_of

__all__ = ["Guard", "GuardEvent", "attach", "guard_of"]
