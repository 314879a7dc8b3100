"""Clips read, kept in memory or resampled on disk, augmented, cut, and collated in batches equal to the processor's."""

from .._core import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "augmentation": ("AddNoise", "ChangeSpeed", "Reverberation"),
        "clip_cache": ("DecodedCache", "Filled"),
        "collators": ("CTCCollator", "Seq2SeqCollator"),
        "ctc_aligner": ("CTCAligner",),
        "decoding": ("load_audio",),
        "loader_rate": ("CodecRate", "LoaderNotMeasuredWarning", "LoaderRate", "measure_loader"),
        "long_clips": ("LongClips",),
        "processor_batches": ("ProcessorNotUsedWarning",),
        "resampled_cache": ("CacheNotKeptWarning", "ResampledCache"),
    },
)
