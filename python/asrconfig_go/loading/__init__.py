"""Faster loading: clips read, kept in memory or resampled on disk, augmented and collated in batches.

>>> from asrconfig_go.loading import CTCCollator, ResampledCache
>>> collator = CTCCollator(processor, load=ResampledCache("clips-16k"))

Needs numpy and soundfile; soxr or scipy for clips of other sampling rates; scipy for augmentations: the ``audio`` extra
of this package has them all.
"""

from .._base.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "audio": ("load_audio",),
        "cache_filling": ("Filled",),
        "collators": ("CTCCollator", "Seq2SeqCollator"),
        "decoded_cache": ("DecodedCache",),
        "loader_rate": ("CodecRate", "LoaderNotMeasuredWarning", "LoaderRate", "measure_loader"),
        "processor_rows": ("ProcessorNotUsedWarning",),
        "noise": ("AddNoise",),
        "resampled_cache": ("CacheNotKeptWarning", "ResampledCache"),
        "reverberation": ("Reverberation",),
        "speed": ("ChangeSpeed",),
        "text_logits": ("TextLogitsCollator", "text_logits_only"),
    },
)
