"""Types of the public names in __init__.py; written by build/stubs.py."""

from .attachment import attach as attach, guard_of as guard_of
from .bad_clips import BadClipError as BadClipError
from .guard import Guard as Guard
from .own_loop import GuardedStep as GuardedStep, guarded_step as guarded_step
from .training_report import (
    BadBatch as BadBatch,
    BadClip as BadClip,
    Change as Change,
    GuardEvent as GuardEvent,
    Restart as Restart,
    TrainingReport as TrainingReport,
)
