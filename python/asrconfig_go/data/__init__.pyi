"""Types of the public names in __init__.py; written by build/stubs.py."""

from .data_records import (
    BadFile as BadFile,
    Duplicates as Duplicates,
    Histogram as Histogram,
    Outliers as Outliers,
    Padding as Padding,
    Sampling as Sampling,
)
from .labels import InfeasiblePair as InfeasiblePair, LabelReport as LabelReport, check_labels as check_labels
from .scan import BadAudioWarning as BadAudioWarning, add_durations as add_durations, scan_audio as scan_audio
from .scan_result import Clip as Clip, Clips as Clips, DatasetProfile as DatasetProfile, ScanResult as ScanResult
from .segments import Segment as Segment
