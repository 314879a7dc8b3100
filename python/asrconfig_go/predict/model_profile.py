"""Models: parameters and the bytes that training keeps for them, from a live module, a config, a folder or a name."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any

from .._core import native
from .._core.files import user_path
from .._core.records import from_json
from ..errors import InvalidArgumentError, UnsupportedError
from .model_source import ModelProfile, can_trace, completed, config_of_name, model_source


def profile_model(model: Any, *, freeze_feature_encoder: bool = False) -> ModelProfile:
    """Count the parameters of ``model``.

    ``model`` is a ``torch.nn.Module``, a transformers config (object or dictionary) of any ``model_type``, a folder
    with ``config.json``, a known name such as ``"facebook/wav2vec2-xls-r-300m"`` or ``"whisper-small"``, or a
    ``ModelProfile``. From a config the module is built without memory, which needs torch and transformers; without
    them a folder's weights are counted. ``freeze_feature_encoder`` leaves the convolutional front end out of the
    trainable parameters, as ``model.freeze_feature_encoder()`` does; a live module already has that.

    Raises ``NotFoundError`` for an unknown name, ``UnsupportedError`` for a config that transformers does not build,
    ``InvalidArgumentError`` for anything else.

    >>> profile_model("wav2vec2-base").total_parameters
    94396320
    """
    if isinstance(model, ModelProfile):
        return completed(model)
    return from_json(ModelProfile, native.call("model.profile", _request(model, freeze_feature_encoder)))


def known_models() -> list[str]:
    """The names that ``profile_model`` knows without any file.

    >>> "openai/whisper-small" in known_models()
    True
    """
    return list(native.call("model.names"))


def _request(model: Any, freeze: bool) -> dict[str, Any]:
    if callable(getattr(model, "named_parameters", None)):
        return {"counts": counts_of_module(model)}
    if isinstance(model, str) and not user_path(model, "model").is_dir():
        config = config_of_name(model)
        if config["class_name"]:  # whose module was counted
            return {"name": config["name"], "freeze_feature_encoder": freeze}
    elif not (isinstance(model, str | os.PathLike | dict) or hasattr(model, "model_type")):
        raise InvalidArgumentError(
            f"cannot read a model from a {type(model).__name__}",
            "pass a torch.nn.Module, a transformers config, a folder with config.json, a known name, or a ModelProfile",
        )
    return _built(model, freeze)


def _built(model: Any, freeze: bool) -> dict[str, Any]:
    """Counts of the module that transformers builds from a config, without memory; else of a folder's weights."""
    path = user_path(os.fspath(model), "model") if isinstance(model, str | os.PathLike) else None
    folder = path is not None and path.is_dir()
    if not can_trace():
        if folder:
            return {"folder": str(path), "freeze_feature_encoder": freeze}
        raise UnsupportedError(
            "a model is built from its config with torch and transformers, which are not installed here",
            "pip install torch transformers, or pass ModelProfile(total_parameters=…, trainable_parameters=…)",
        )
    try:
        source = model_source(model, freeze)
        counts = counts_of_module(on_meta(source.model))
    except UnsupportedError:
        if not folder or freeze:
            raise
        return {"folder": str(path)}
    return {"counts": {**counts, "name": source.label, "source": "folder" if folder else "config"}}


def on_meta(build: Callable[[], Any]) -> Any:
    """Build a model without memory."""
    import torch

    with torch.device("meta"):
        return build()


def counts_of_module(module: Any) -> dict[str, Any]:
    """Counts of a live module; a parameter that two names share counts once."""
    parameters = {id(p): p for _, p in module.named_parameters()}.values()
    trainable = [p for p in parameters if p.requires_grad]
    config = getattr(module, "config", None)
    return {
        "total": sum(p.numel() for p in parameters),
        "trainable": sum(p.numel() for p in trainable),
        "parameter_bytes": sum(p.numel() * p.element_size() for p in parameters),
        "gradient_bytes": sum(p.numel() * p.element_size() for p in trainable),
        "adafactor_state_bytes": sum(adafactor_bytes(tuple(p.shape)) for p in trainable),
        "class_name": type(module).__name__,
        "architecture": str(getattr(config, "model_type", "custom")),
        "source": "module",
        **_shape_of_config(config),
    }


def adafactor_bytes(shape: tuple[int, ...]) -> int:
    """Second moments in fp32: one per row and per column from two dimensions on (Shazeer & Stern 2018)."""
    if len(shape) < 2:
        return 4 * math.prod(shape)
    return 4 * (math.prod(shape[:-1]) + math.prod(shape[:-2]) * shape[-1])


def _shape_of_config(config: Any) -> dict[str, int]:
    hidden = getattr(config, "hidden_size", None) or getattr(config, "d_model", None)
    layers = sum(getattr(config, name, None) or 0 for name in ("encoder_layers", "decoder_layers"))
    shape = {"hidden_size": hidden, "layers": layers or getattr(config, "num_hidden_layers", None)}
    return {name: value for name, value in shape.items() if isinstance(value, int)}
