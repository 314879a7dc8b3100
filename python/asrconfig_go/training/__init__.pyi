"""Types of the public names in __init__.py; written by build/stubs.py."""

from .batch_replay import BatchReplay as BatchReplay, ReplayedClip as ReplayedClip, replay_batch as replay_batch
from .planned_batches import PlanNotFollowedWarning as PlanNotFollowedWarning
from .training_check import TrainingCheckWarning as TrainingCheckWarning
