"""Models: parameters and the bytes that training keeps for them, from a live module, a config, a folder or a name."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, get_type_hints

from .._core import native
from .._core.checks import OptimizerState, checked
from .._core.records import from_json, to_json
from .._core.render import Shown
from ..errors import InvalidArgumentError
from ..trace.model import Model


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
        complete = _completed(self)
        if optimizer not in complete.optimizer_bytes:
            names = ", ".join(complete.optimizer_bytes)
            raise InvalidArgumentError(f"optimizer {optimizer!r} is not known", f"choose one of {names}")
        return (complete.parameter_bytes or 0) + (complete.gradient_bytes or 0) + complete.optimizer_bytes[optimizer]


def _completed(profile: ModelProfile) -> ModelProfile:
    """A profile with the omitted fields derived."""
    if profile.optimizer_bytes:
        return profile
    return from_json(ModelProfile, native.call("model.profile", {"counts": _counts_by_hand(profile)}))


def _counts_by_hand(profile: ModelProfile) -> dict[str, Any]:
    for name, hint in get_type_hints(ModelProfile).items():
        checked(f"ModelProfile.{name}", getattr(profile, name), hint)
    counts: dict[str, Any] = dict(to_json(profile))
    del counts["optimizer_bytes"]
    counts["total"], trainable = counts.pop("total_parameters"), counts.pop("trainable_parameters")
    counts["trainable"] = counts["total"] if trainable is None else trainable
    return {name: value for name, value in counts.items() if value is not None}


def profile_model(model: object, *, freeze_feature_encoder: bool = False) -> ModelProfile:
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
        return _completed(model)
    request = Model.of(model, freeze_feature_encoder).profile_request()
    return from_json(ModelProfile, native.call("model.profile", request))


def known_models() -> list[str]:
    """The names that ``profile_model`` knows without any file.

    >>> "openai/whisper-small" in known_models()
    True
    """
    return list(native.call("model.names"))
