"""Types of the public names in __init__.py; written by build/stubs.py."""

from .._base.adapters import add_lora as add_lora
from .applied_settings import Applied as Applied, AppliedSetting as AppliedSetting, TooLateWarning as TooLateWarning
from .frozen_parts import freeze as freeze
from .model_preparation import prepare_model as prepare_model
from .training_arguments import UnsupportedSettingWarning as UnsupportedSettingWarning
