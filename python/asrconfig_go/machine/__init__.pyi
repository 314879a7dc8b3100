"""Types of the public names in __init__.py; written by build/stubs.py."""

from .hardware import (
    CPU as CPU,
    GPU as GPU,
    GPUProcess as GPUProcess,
    HardwareProfile as HardwareProfile,
    Memory as Memory,
)
from .model import known_models as known_models, profile_model as profile_model
from .model_profile import ModelProfile as ModelProfile
