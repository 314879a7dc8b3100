"""Models: parameters and the bytes that training keeps for them, from a live module, a config, a folder or a name."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, get_type_hints

from .._core import native
from .._core.checks import checked
from .._core.files import user_path
from .._core.records import from_json, to_json
from .._core.render import Shown
from ..errors import InvalidArgumentError, UnsupportedError
from ..trace.model import Model, can_trace

if TYPE_CHECKING:
    from torch import nn

_COUNTED = "pass a torch.nn.Module, a transformers config, a folder with config.json, a known name, or a ModelProfile"


@dataclass(frozen=True, repr=False)
class ModelProfile(Shown, kind="model"):
    """The size of a model. Counts are elements, sizes bytes.

    ``ModelProfile(total_parameters=…)`` is enough: ``profile_model`` derives what is left out, with 4 bytes for each
    parameter and each gradient, and all parameters trainable.

    Attributes:
        total_parameters: All parameters.
        trainable_parameters: Those that require gradients; None for all.
        name: The name of the model.
        architecture: The ``model_type`` of its config.
        class_name: The class that fine-tuning uses.
        hidden_size: The width of its layers; None where it is not known.
        layers: The layers of encoder and decoder together; None where they are not known.
        parameter_bytes: The bytes of all parameters.
        gradient_bytes: The bytes of the gradients.
        optimizer_bytes: The bytes of the states of each optimizer, by name.
        source: Where the counts are from: ``"module"``, ``"config"``, ``"folder"``, ``"catalogue"`` or ``"manual"``.

    Example:
        >>> profile_model(ModelProfile(total_parameters=300_000_000)).gradient_bytes
        1200000000
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


def _counts_by_hand(profile: ModelProfile) -> dict[str, Any]:
    for name, hint in get_type_hints(ModelProfile).items():
        checked(f"ModelProfile.{name}", getattr(profile, name), hint)
    counts: dict[str, Any] = dict(to_json(profile))
    del counts["optimizer_bytes"]
    counts["total"], trainable = counts.pop("total_parameters"), counts.pop("trainable_parameters")
    counts["trainable"] = counts["total"] if trainable is None else trainable
    return {name: value for name, value in counts.items() if value is not None}


def profile_model(model: object, *, freeze_feature_encoder: bool = False) -> ModelProfile:
    """Count the parameters of a model, and the bytes that training keeps for them.

    From a config the module is built without memory, which requires torch and transformers; without them a folder's
    weights are counted.

    Args:
        model: A ``torch.nn.Module``, a transformers config (object or dictionary) of any ``model_type``, a folder with
            ``config.json``, a known name such as ``"facebook/wav2vec2-xls-r-300m"`` or ``"whisper-small"``, another
            name of the Hugging Face Hub, or a ``ModelProfile``.
        freeze_feature_encoder: Whether the convolutional front end is not trainable, as after
            ``model.freeze_feature_encoder()``. It changes nothing for a live module, whose parameters are counted as
            they are.

    Returns:
        The profile.

    Raises:
        NotFoundError: The name is unknown.
        UnsupportedError: transformers cannot build the config, or is not installed.
        InvalidArgumentError: ``model`` is a function or anything else, cannot be built, or has no feature encoder to
            freeze.

    Example:
        >>> profile_model("wav2vec2-base").total_parameters
        94396320
    """
    if isinstance(model, ModelProfile):
        if model.optimizer_bytes:
            return model
        request = {"counts": _counts_by_hand(model)}
    else:
        request = _request(Model.of(model, freeze_feature_encoder))
    return from_json(ModelProfile, native.call("model.profile", request))


def known_models() -> list[str]:
    """Return the names that ``profile_model`` accepts without any file.

    Returns:
        The names.

    Example:
        >>> "openai/whisper-small" in known_models()
        True
    """
    return list(native.call("model.names"))


def _request(model: Model) -> dict[str, Any]:
    """What ``model.profile`` takes: the counts, or the name or the folder that the library counts itself."""
    if model.is_module:
        return {"counts": counts_of_module(model.passed)}
    if model.kind == "function":
        raise InvalidArgumentError("cannot count the parameters of a function", _COUNTED)
    if model.catalogued:
        return {"name": model.label, "freeze_feature_encoder": model.freeze_feature_encoder}
    folder = {"folder": str(user_path(model.passed, "model"))} if model.kind == "folder" else {}
    if not can_trace():
        if folder:
            return {**folder, "freeze_feature_encoder": model.freeze_feature_encoder}
        raise UnsupportedError(
            "a model is built from its config with torch and transformers, which are not installed here",
            "pip install torch transformers, or pass ModelProfile(total_parameters=…, trainable_parameters=…)",
        )
    try:
        counts = counts_of_module(on_meta(model.build))
    except UnsupportedError:  # its weights are counted
        if not folder or model.freeze_feature_encoder:
            raise
        return folder
    return {"counts": {**counts, "name": model.label, "source": "folder" if folder else "config"}}


def on_meta(build: Callable[[], Any]) -> Any:
    """Build a model without memory."""
    import torch

    with torch.device("meta"):
        return build()


def counts_of_module(module: nn.Module) -> dict[str, Any]:
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
        **_width_and_depth(config),
    }


def adafactor_bytes(shape: tuple[int, ...]) -> int:
    """Second moments in fp32: one per row and per column from two dimensions on (Shazeer & Stern 2018)."""
    if len(shape) < 2:
        return 4 * math.prod(shape)
    return 4 * (math.prod(shape[:-1]) + math.prod(shape[:-2]) * shape[-1])


def _width_and_depth(config: object) -> dict[str, int]:
    hidden = getattr(config, "hidden_size", None) or getattr(config, "d_model", None)
    layers = sum(getattr(config, name, None) or 0 for name in ("encoder_layers", "decoder_layers"))
    shape = {"hidden_size": hidden, "layers": layers or getattr(config, "num_hidden_layers", None)}
    return {name: value for name, value in shape.items() if isinstance(value, int)}
