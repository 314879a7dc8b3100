"""Types of the public names in __init__.py; written by build/stubs.py."""

from .augmentation import AddNoise as AddNoise, ChangeSpeed as ChangeSpeed, Reverberation as Reverberation
from .clip_cache import DecodedCache as DecodedCache, Filled as Filled
from .collators import CTCCollator as CTCCollator, Seq2SeqCollator as Seq2SeqCollator
from .ctc_aligner import CTCAligner as CTCAligner
from .decoding import load_audio as load_audio
from .loader_rate import (
    CodecRate as CodecRate,
    LoaderNotMeasuredWarning as LoaderNotMeasuredWarning,
    LoaderRate as LoaderRate,
    measure_loader as measure_loader,
)
from .long_clips import LongClips as LongClips
from .processor_batches import ProcessorNotUsedWarning as ProcessorNotUsedWarning
from .resampled_cache import CacheNotKeptWarning as CacheNotKeptWarning, ResampledCache as ResampledCache
