"""Types of the public names in __init__.py; written by build/stubs.py."""

from .fine_tune_options import FineTuneResult as FineTuneResult
from .fine_tuning import fine_tune as fine_tune, push_to_hub as push_to_hub
from .labelling import prepare as prepare
from .model_building import load_model as load_model
from .processors import build_processor as build_processor
from .speech_data import SpeechData as SpeechData, clean_text as clean_text
from .speech_sources import load_speech as load_speech
from .trainers import make_trainer as make_trainer
from .transcription import (
    make_collator as make_collator,
    transcribe as transcribe,
    word_error_rates as word_error_rates,
)
