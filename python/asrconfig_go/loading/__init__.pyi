"""Types of the public names in __init__.py; written by build/stubs.py."""

from .audio import load_audio as load_audio
from .cache_filling import Filled as Filled
from .collators import CTCCollator as CTCCollator, Seq2SeqCollator as Seq2SeqCollator
from .decoded_cache import DecodedCache as DecodedCache
from .loader_rate import (
    CodecRate as CodecRate,
    LoaderNotMeasuredWarning as LoaderNotMeasuredWarning,
    LoaderRate as LoaderRate,
    measure_loader as measure_loader,
)
from .noise import AddNoise as AddNoise
from .processor_rows import ProcessorNotUsedWarning as ProcessorNotUsedWarning
from .resampled_cache import CacheNotKeptWarning as CacheNotKeptWarning, ResampledCache as ResampledCache
from .reverberation import Reverberation as Reverberation
from .speed import ChangeSpeed as ChangeSpeed
from .text_logits import TextLogitsCollator as TextLogitsCollator, text_logits_only as text_logits_only
