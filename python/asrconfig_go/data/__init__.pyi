"""Types of the public names in __init__.py; written by build/stubs.py."""

from .clips import Clip as Clip, Clips as Clips
from .data_records import (
    BadFile as BadFile,
    Duplicates as Duplicates,
    Histogram as Histogram,
    Outliers as Outliers,
    Padding as Padding,
    Sampling as Sampling,
)
from .durations import BadAudioWarning as BadAudioWarning, add_durations as add_durations
from .labels import InfeasiblePair as InfeasiblePair, LabelReport as LabelReport, check_labels as check_labels
from .profile import DatasetProfile as DatasetProfile
from .scan import ScanResult as ScanResult, scan_audio as scan_audio
from .segments import Segment as Segment
