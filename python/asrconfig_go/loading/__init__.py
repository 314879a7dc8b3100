"""Faster loading: clips read, kept in memory or resampled on disk, augmented and collated in batches.

>>> from asrconfig_go.loading import CTCCollator, ResampledCache
>>> collator = CTCCollator(processor, load=ResampledCache("clips-16k"))

Needs numpy and soundfile; soxr or scipy for clips of other sampling rates; scipy for augmentations: the ``audio`` extra
of this package has them all.
"""

from __future__ import annotations

from .audio import load_audio
from .cache_filling import Filled
from .collators import CTCCollator, Seq2SeqCollator
from .decoded_cache import DecodedCache
from .noise import AddNoise
from .resampled_cache import CacheNotKeptWarning, ResampledCache
from .reverberation import Reverberation
from .speed import ChangeSpeed

__all__ = [
    "AddNoise",
    "CTCCollator",
    "CacheNotKeptWarning",
    "ChangeSpeed",
    "DecodedCache",
    "Filled",
    "ResampledCache",
    "Reverberation",
    "Seq2SeqCollator",
    "load_audio",
]
