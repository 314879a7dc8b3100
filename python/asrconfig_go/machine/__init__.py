"""Profiles of the machine and the model."""

from .._base.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "hardware": ("CPU", "GPU", "GPUProcess", "HardwareProfile", "Memory"),
        "model": ("known_models", "profile_model"),
        "model_profile": ("ModelProfile",),
    },
)
