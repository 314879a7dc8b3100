"""Models: parameters and the bytes that training keeps for them, from a live module, a config, a folder or a name."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field, replace
from typing import Any, get_type_hints

from .._base import native
from .._base.checks import checked
from .._base.choices import OptimizerState
from .._base.errors import InvalidArgumentError
from .._base.files import user_path
from .._base.json_files import config_values
from .._base.records import from_json, to_json
from ..view.render import Shown
from .named_models import request_of_name


@dataclass(frozen=True, repr=False)
class ModelProfile(Shown, kind="model"):
    """A model's size. Counts are elements, sizes bytes.

    By hand, ``ModelProfile(total_parameters=…)`` is enough: ``profile_model`` derives what is left out with 4 bytes a
    parameter and a gradient, and all parameters trainable.

    >>> ModelProfile(total_parameters=300_000_000).training_bytes("sgd")
    2400000000
    """

    total_parameters: int
    trainable_parameters: int | None = None
    name: str = ""
    architecture: str = ""
    class_name: str = ""
    hidden_size: int | None = None
    layers: int | None = None
    parameter_bytes: int | None = None
    gradient_bytes: int | None = None
    optimizer_bytes: dict[str, int] = field(default_factory=dict)
    source: str = "manual"

    def training_bytes(self, optimizer: OptimizerState = "adamw") -> int:
        """Parameters, gradients and optimizer state: ``"adamw"``, ``"adamw_8bit"``, ``"adafactor"`` or ``"sgd"``."""
        complete = profile_model(self)
        if optimizer not in complete.optimizer_bytes:
            known = ", ".join(complete.optimizer_bytes)
            raise InvalidArgumentError(f"optimizer {optimizer!r} is not known", f"choose one of {known}")
        return (complete.parameter_bytes or 0) + (complete.gradient_bytes or 0) + complete.optimizer_bytes[optimizer]


def profile_model(model: Any, *, freeze_feature_encoder: bool = False) -> ModelProfile:
    """Count the parameters of ``model``.

    ``model`` is a ``torch.nn.Module``, a transformers config (object or dictionary), a folder with ``config.json``, a
    known name such as ``"facebook/wav2vec2-xls-r-300m"`` or ``"whisper-small"``, or a ``ModelProfile``.
    ``freeze_feature_encoder`` leaves the convolutional front end out of the trainable parameters, as
    ``model.freeze_feature_encoder()`` does; a live module already has that.

    Raises ``NotFoundError`` for an unknown name, ``InvalidArgumentError`` for anything else.

    >>> profile_model("wav2vec2-base").total_parameters
    94396320
    """
    if isinstance(model, ModelProfile) and model.optimizer_bytes:
        return model
    found = from_json(ModelProfile, native.call("model.profile", _request(model, freeze_feature_encoder)))
    named = isinstance(model, str) and not found.name  # by a config that the catalogue does not have
    return replace(found, name=model) if named else found


def known_models() -> list[str]:
    """The names that ``profile_model`` knows without any file.

    >>> "openai/whisper-small" in known_models()
    True
    """
    return list(native.call("model.names"))


def _request(model: Any, freeze: bool) -> dict[str, Any]:
    if isinstance(model, ModelProfile):
        return {"counts": _counts_by_hand(model)}
    if isinstance(model, str | os.PathLike):
        return {**_named(os.fspath(model)), "freeze_feature_encoder": freeze}
    if isinstance(model, dict):
        return {"config": model, "freeze_feature_encoder": freeze}
    if callable(getattr(model, "named_parameters", None)):
        return {"counts": _counts_of_module(model)}
    if hasattr(model, "model_type") and hasattr(model, "to_json_string"):
        config = config_values(model)
        return {"config": config, "freeze_feature_encoder": freeze}
    raise InvalidArgumentError(
        f"cannot read a model from a {type(model).__name__}",
        "pass a torch.nn.Module, a transformers config, a folder with config.json, a known name, or a ModelProfile",
    )


def _named(model: str) -> dict[str, Any]:
    """A folder when there is one, else a name."""
    path = user_path(model, "model")
    return {"folder": str(path)} if path.is_dir() else request_of_name(model)


def _counts_by_hand(profile: ModelProfile) -> dict[str, Any]:
    for name, hint in get_type_hints(ModelProfile).items():
        checked(f"ModelProfile.{name}", getattr(profile, name), hint)
    given: dict[str, Any] = dict(to_json(profile))
    del given["optimizer_bytes"]
    given["total"], trainable = given.pop("total_parameters"), given.pop("trainable_parameters")
    given["trainable"] = given["total"] if trainable is None else trainable
    return {name: value for name, value in given.items() if value is not None}


def _counts_of_module(module: Any) -> dict[str, Any]:
    """Counts of a live module; a parameter that two names share counts once."""
    parameters = {id(p): p for _, p in module.named_parameters()}.values()
    trainable = [p for p in parameters if p.requires_grad]
    config = getattr(module, "config", None)
    return {
        "total": sum(p.numel() for p in parameters),
        "trainable": sum(p.numel() for p in trainable),
        "parameter_bytes": sum(p.numel() * p.element_size() for p in parameters),
        "gradient_bytes": sum(p.numel() * p.element_size() for p in trainable),
        "adafactor_state_bytes": sum(_adafactor_bytes(tuple(p.shape)) for p in trainable),
        "class_name": type(module).__name__,
        "architecture": str(getattr(config, "model_type", "custom")),
        "source": "module",
        **_shape_of_config(config),
    }


def _adafactor_bytes(shape: tuple[int, ...]) -> int:
    """Second moments in fp32: one per row and per column from two dimensions on (Shazeer & Stern 2018)."""
    if len(shape) < 2:
        return 4 * math.prod(shape)
    return 4 * (math.prod(shape[:-1]) + math.prod(shape[:-2]) * shape[-1])


def _shape_of_config(config: Any) -> dict[str, int]:
    hidden = getattr(config, "hidden_size", None) or getattr(config, "d_model", None)
    layers = [getattr(config, name, None) for name in ("encoder_layers", "decoder_layers")]
    if any(layers):
        layer_count: int | None = sum(n for n in layers if n)
    else:
        layer_count = getattr(config, "num_hidden_layers", None)
    found = {"hidden_size": hidden, "layers": layer_count}
    return {name: value for name, value in found.items() if isinstance(value, int)}
