"""Audio datasets: sources, clips, durations, labels, transcripts, and their profile."""

from .._core import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "data_records": ("BadFile", "Duplicates", "Histogram", "Outliers", "Padding", "Sampling"),
        "labels": ("InfeasiblePair", "LabelReport", "check_labels"),
        "scan": ("BadAudioWarning", "add_durations", "scan_audio"),
        "scan_result": ("Clip", "Clips", "DatasetProfile", "ScanResult"),
        "segments": ("Segment",),
    },
)
