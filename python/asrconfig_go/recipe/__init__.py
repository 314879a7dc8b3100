"""From data by name to a trained speech model: every stage of a fine-tuning as a function, and all of them in one."""

from .._core import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "fine_tune_options": ("FineTuneResult",),
        "fine_tuning": ("fine_tune", "push_to_hub"),
        "labelling": ("prepare",),
        "model_building": ("load_model",),
        "processors": ("build_processor",),
        "speech_data": ("SpeechData", "clean_text"),
        "speech_sources": ("load_speech",),
        "trainers": ("make_trainer",),
        "transcription": ("make_collator", "transcribe", "word_error_rates"),
    },
)
