"""From data by name to a trained speech model: every stage of a fine-tuning as a function, and all of them as one.

>>> from asrconfig_go.recipe import fine_tune
>>> print(fine_tune("demo", "tiny-wav2vec2", "out"))
"""

from __future__ import annotations

from .cleaning import clean_text
from .collating import make_collator
from .hub import push_to_hub
from .models import load_model
from .preparing import prepare
from .processors import build_processor
from .result import FineTuneResult
from .scoring import transcribe, word_error_rates
from .sources import load_speech
from .speech import SpeechData
from .trainers import make_trainer
from .training import fine_tune

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
