"""From data by name to a trained speech model: every stage of a fine-tuning as a function, and all of them as one.

>>> from asrconfig_go.recipe import fine_tune
>>> print(fine_tune("demo", "tiny-wav2vec2", "out"))
"""

from .._base.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "fine_tune_result": ("FineTuneResult",),
        "fine_tuning": ("fine_tune",),
        "hub": ("push_to_hub",),
        "labelling": ("prepare",),
        "model_building": ("load_model",),
        "model_collator": ("make_collator",),
        "processors": ("build_processor",),
        "speech_data": ("SpeechData",),
        "speech_sources": ("load_speech",),
        "trainers": ("make_trainer",),
        "transcription": ("transcribe", "word_error_rates"),
        "transcripts": ("clean_text",),
    },
)
