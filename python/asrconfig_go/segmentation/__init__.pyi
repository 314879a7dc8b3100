"""Types of the public names in __init__.py; written by build/stubs.py."""

from .ctc_aligner import CTCAligner as CTCAligner
from .long_clips import LongClips as LongClips
from .segments import Segment as Segment
