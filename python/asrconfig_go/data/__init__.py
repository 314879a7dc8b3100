"""Audio datasets: sources, clips, durations, labels, transcripts, and their profile."""

from .._core import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "clips": ("Clip", "Clips"),
        "durations": ("BadAudioWarning", "add_durations"),
        "data_records": ("BadFile", "Duplicates", "Histogram", "Outliers", "Padding", "Sampling"),
        "labels": ("InfeasiblePair", "LabelReport", "check_labels"),
        "profile": ("DatasetProfile",),
        "scan": ("ScanResult", "scan_audio"),
        "segments": ("Segment",),
    },
)
