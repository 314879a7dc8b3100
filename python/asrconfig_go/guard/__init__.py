"""Training steps that survive running out of GPU memory without changing the mathematics of the run."""

from .guard import Guard, GuardEvent, attach

__all__ = ["Guard", "GuardEvent", "attach"]
