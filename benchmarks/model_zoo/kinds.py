"""All rows of the zoo: importing the modules registers them."""

from __future__ import annotations

import importlib

from material import ROWS

_MODULES = ("ctc", "transducers", "encoder_decoders", "audio_llms", "multimodal_llms", "classifiers", "others")
for _module in _MODULES:
    importlib.import_module(_module)

__all__ = ["ROWS"]
