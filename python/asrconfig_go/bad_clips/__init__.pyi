"""Types of the public names in __init__.py; written by build/stubs.py."""

from .bad_clip_record import BadBatch as BadBatch, BadClip as BadClip
from .detection import BadClipError as BadClipError
