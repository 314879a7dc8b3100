"""Audio datasets: sources, clips, durations, labels, transcripts, and their profile."""

from .._core.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "clips": ("Clip", "Clips"),
        "durations": ("BadAudioWarning", "add_durations"),
        "labels": ("InfeasiblePair", "LabelReport", "check_labels"),
        "profile": ("BadFile", "DatasetProfile", "Duplicates", "Histogram", "Outliers", "Padding", "Sampling"),
        "scan": ("ScanResult", "scan_audio"),
        "segments": ("Segment",),
    },
)
