"""Types of the public names in __init__.py; written by build/stubs.py."""

from .planned_batches import PlanNotFollowedWarning as PlanNotFollowedWarning
