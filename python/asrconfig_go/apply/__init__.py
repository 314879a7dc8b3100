"""Applying a plan: training arguments, environment variables, torch's switches, the model."""

from .._base.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "._base.adapters": ("add_lora",),
        "applied_settings": ("Applied", "AppliedSetting", "TooLateWarning"),
        "frozen_parts": ("freeze",),
        "model_preparation": ("prepare_model",),
        "training_arguments": ("UnsupportedSettingWarning",),
    },
)
