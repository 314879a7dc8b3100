"""Types of the public names in __init__.py; written by build/stubs.py."""

from .batch_replay import BatchReplay as BatchReplay, ReplayedClip as ReplayedClip, replay_batch as replay_batch
from .planned_batches import PlanNotFollowedWarning as PlanNotFollowedWarning
from .stream_batches import StreamBatches as StreamBatches
from .stream_training import use_batches as use_batches, with_batches as with_batches
from .training_check import TrainingCheckWarning as TrainingCheckWarning
