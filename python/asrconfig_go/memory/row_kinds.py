"""What a model trains on, by its ``forward``: clips of audio or texts."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

from .._base.errors import AsrConfigError
from .._base.input_units import RowKind, audio_name
from .._base.wrapped_model import bare
from ..machine.model_profile import ModelProfile
from ..machine.model_source import can_trace, model_config

_TOKENS = "input_ids"


def row_kind_of(model: Any) -> RowKind:
    """``"texts"`` for a model whose ``forward`` takes tokens and nothing to hear, else ``"clips"``.

    ``model`` is whatever ``profile_model`` takes. Known names are those of speech models.
    """
    kind = bare(model) if callable(getattr(model, "named_parameters", None)) else _class_of(model)
    if not hasattr(kind, "forward"):
        return "clips"
    names = [*inspect.signature(kind.forward).parameters, *_settings(model)]
    return "texts" if _TOKENS in names and audio_name(names) is None else "clips"


def _class_of(model: Any) -> Any:
    """The class that fine-tuning uses of a config; None where that needs no look, or is not known."""
    named = isinstance(model, str) and not Path(model).is_dir()
    if model is None or named or isinstance(model, ModelProfile) or callable(model) or not can_trace():
        return None
    try:
        class_name = model_config(model)[2]
    except AsrConfigError:
        return None
    import transformers

    return getattr(transformers, class_name, None)


def _settings(model: Any) -> list[str]:
    """The names in a model's config: audio that comes as tokens shows nowhere else."""
    config = getattr(model, "config", model)
    return list(config) if isinstance(config, dict) else list(getattr(config, "__dict__", ()))
