"""The layers that FSDP gathers one by one."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from .._base.errors import InvalidArgumentError

_SMALL = 0.1  # of the model: what holds less is not worth a unit of its own


def layer_classes(model: Any) -> tuple[str, ...]:
    """Class names of a live module's repeated layers, for FSDP's units: ``("Wav2Vec2EncoderLayer",)``.

    They are the classes that fill a ``ModuleList`` and together hold at least a tenth of the parameters; transformers
    names them for a part of its speech models only (``_no_split_modules``).

    >>> from asrconfig_go.demo.digit_model import small_model
    >>> layer_classes(small_model(tokens=12, seed=0))
    ('Wav2Vec2EncoderLayerStableLayerNorm', 'Wav2Vec2LayerNormConvLayer')
    """
    import torch

    if not isinstance(model, torch.nn.Module):
        raise InvalidArgumentError(
            f"{type(model).__name__} is not a torch module", "pass the model that will be trained"
        )
    parameters: Counter[str] = Counter()
    for module in model.modules():
        if isinstance(module, torch.nn.ModuleList):
            for layer in module:
                parameters[type(layer).__name__] += sum(p.numel() for p in layer.parameters())
    total = sum(p.numel() for p in model.parameters())
    return tuple(sorted(name for name, count in parameters.items() if count >= _SMALL * total))


@dataclass(frozen=True)
class Units:
    """What FSDP shards by, and which of its versions."""

    layers: tuple[str, ...]
    version: int


def fsdp_units(layers: Any, model: Any) -> Units:
    """Of the class names given, or of the model's.

    Version 2, but 1 for models without text embeddings (wav2vec2 and its kin): accelerate 1.15 asks each model for
    them, and theirs raise ``NotImplementedError``. Without the model its layers' names are needed.
    """
    names = _checked(layers, model)
    if model is None:
        return Units(names, 2 if any(name.startswith("Whisper") for name in names) else 1)
    try:
        getattr(model, "get_input_embeddings", lambda: None)()
    except NotImplementedError:
        return Units(names, 1)
    return Units(names, 2)


def _checked(layers: Any, model: Any) -> tuple[str, ...]:
    if isinstance(layers, str):
        raise InvalidArgumentError(f"layers = {layers!r} is a str", "pass a list of class names")
    names = tuple(layers) or (layer_classes(model) if model is not None else ())
    if not names or not all(isinstance(name, str) and name.isidentifier() for name in names):
        raise InvalidArgumentError(
            "fsdp needs the class names of the model's layers, which it gathers one by one",
            'pass model=, or layers=["Wav2Vec2EncoderLayerStableLayerNorm"] (XLS-R), ["Wav2Vec2EncoderLayer"] '
            '(wav2vec2-base), ["WhisperEncoderLayer", "WhisperDecoderLayer"]',
        )
    return names
