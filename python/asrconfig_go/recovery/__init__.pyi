"""Types of the public names in __init__.py; written by build/stubs.py."""

from .guard_event import GuardEvent as GuardEvent
