"""From data by name to a trained speech model: every stage of a fine-tuning as a function, and all of them as one.

>>> from asrconfig_go.recipe import fine_tune
>>> print(fine_tune("demo", "tiny-wav2vec2", "out"))
"""

from __future__ import annotations

from .fine_tune_result import FineTuneResult
from .fine_tuning import fine_tune
from .hub import push_to_hub
from .labelling import prepare
from .model_building import load_model
from .model_collator import make_collator
from .processors import build_processor
from .speech_data import SpeechData
from .speech_sources import load_speech
from .trainers import make_trainer
from .transcription import transcribe, word_error_rates
from .transcripts import clean_text

__all__ = [
    "FineTuneResult",
    "SpeechData",
    "build_processor",
    "clean_text",
    "fine_tune",
    "load_model",
    "load_speech",
    "make_collator",
    "make_trainer",
    "prepare",
    "push_to_hub",
    "transcribe",
    "word_error_rates",
]
