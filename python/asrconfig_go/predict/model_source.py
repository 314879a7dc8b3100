"""Models to build and trace, each with a text that identifies it; the record of a model's size."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import importlib.util
import inspect
import os
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_type_hints

from .._core import native
from .._core.checks import OptimizerState, checked
from .._core.files import config_values, fingerprint, read_object, user_path
from .._core.hub import from_hub
from .._core.modules import bare
from .._core.output import shortened
from .._core.records import from_json, to_json
from .._core.render import Shown
from ..errors import InvalidArgumentError, NotFoundError, UnsupportedError
from .tiny_models import TINY


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
        complete = completed(self)
        if optimizer not in complete.optimizer_bytes:
            names = ", ".join(complete.optimizer_bytes)
            raise InvalidArgumentError(f"optimizer {optimizer!r} is not known", f"choose one of {names}")
        return (complete.parameter_bytes or 0) + (complete.gradient_bytes or 0) + complete.optimizer_bytes[optimizer]


def completed(profile: ModelProfile) -> ModelProfile:
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


_ACCEPTED = (
    "pass a torch.nn.Module, a function that builds one, a transformers config, a folder with config.json, "
    "or a known name"
)
_OWN_FILES = (
    "its code lies beside the config and is not run here: load it yourself, with trust_remote_code=True, "
    "and pass the module"
)
# Values of a config, and attributes of a module, without influence on a training step.
_NAMES_ONLY = ("_name_or_path", "name_or_path", "transformers_version", "architectures", "id2label", "label2id")
_UNTUNED = ("Model", "ForPreTraining")  # suffixes of classes that are not fine-tuned
# The tasks in which a class is looked up, in this order, by the names of transformers' tables.
_TASKS = (
    "CTC", "SPEECH_SEQ_2_SEQ", "TDT", "RNNT", "MULTIMODAL_LM", "MASKED_LM", "CAUSAL_LM", "SEQ_TO_SEQ_CAUSAL_LM",
    "AUDIO_CLASSIFICATION", "SEQUENCE_CLASSIFICATION",
)  # fmt: skip
_VERSIONED = ("torch", "transformers", "accelerate", "peft")  # packages whose version identifies their code


@dataclass(frozen=True)
class ModelSource:
    """``model`` is what the recorder takes: a live module, or a function that builds one.

    ``identity`` changes with everything of the model that shapes a training step; it is None for functions, whose
    result cannot be known without calling them.
    """

    label: str
    model: Any
    identity: str | None


def can_trace() -> bool:
    """Whether torch and transformers are installed; neither is imported for the answer."""
    return all(importlib.util.find_spec(name) is not None for name in ("torch", "transformers"))


def model_source(model: Any, freeze_feature_encoder: bool = False) -> ModelSource:
    """Read the user's model; transformers is imported only when it is built.

    Raises ``UnsupportedError`` for a model that cannot be built here.
    """
    if isinstance(model, ModelSource):
        return model
    if is_module(model):
        return _live(model, freeze_feature_encoder)
    if isinstance(model, ModelProfile):
        raise UnsupportedError(f"{model.name or 'the model'} has only its counts", _ACCEPTED)
    if callable(model):
        return ModelSource(getattr(model, "__name__", "model"), model, None)
    label, values, class_name = model_config(model)
    identity = fingerprint("config", class_name, _shaping(values), freeze_feature_encoder)
    config = None if isinstance(model, str | os.PathLike | dict) else model
    return ModelSource(label, _builder(config, values, class_name, freeze_feature_encoder), identity)


def is_module(model: Any) -> bool:
    """Whether this is a live torch module."""
    return not isinstance(model, type) and callable(getattr(model, "named_parameters", None))


def _live(model: Any, freeze_feature_encoder: bool) -> ModelSource:
    encoder = (p.requires_grad for name, p in model.named_parameters() if "feature_extractor." in name)
    if freeze_feature_encoder and any(encoder):
        raise InvalidArgumentError(
            "freeze_feature_encoder=True, but the module's feature encoder is trainable",
            "call model.freeze_feature_encoder() first: a live module is taken as it is",
        )
    return ModelSource(type(bare(model)).__name__, model, structure_of(model))


def model_config(model: Any) -> tuple[str, dict[str, Any], str]:
    """Label, config and the class that fine-tuning uses."""
    label, values, class_name = config_values_of(model)
    return label, values, class_name or _class_name(values)


def config_values_of(model: Any) -> tuple[str, dict[str, Any], str]:
    """Label and config of a name, a folder or a config, and the class of a known name, "" otherwise."""
    if isinstance(model, str | os.PathLike):
        path = user_path(model, "model")
        if not path.is_dir():
            named = config_of_name(os.fspath(model))
            return named["name"], named["config"], named["class_name"]
        return path.name, read_object(path / "config.json", "model's config", "save the model there"), ""
    if isinstance(model, dict):
        return str(model.get("model_type", "config")), model, ""
    if hasattr(model, "model_type") and hasattr(model, "to_json_string"):
        return str(model.model_type), config_values(model), ""
    raise InvalidArgumentError(f"cannot read a model from a {type(model).__name__}", _ACCEPTED)


def config_of_name(name: str) -> dict[str, Any]:
    """``name``, ``config`` as transformers writes it, and ``class_name``, "" where the config names it.

    Raises ``NotFoundError`` for a name that neither the catalogue nor the Hub knows.
    """
    if name in TINY:
        return {"name": name, "config": TINY[name], "class_name": TINY[name]["architectures"][0]}
    try:
        return dict(native.call("model.config", {"name": name}))
    except NotFoundError as unknown:
        if name.count("/") != 1 or importlib.util.find_spec("transformers") is None:
            raise
        from transformers import AutoConfig

        config = from_hub("the config of", name, lambda: AutoConfig.from_pretrained(name), unknown.hint)
        return {"name": name, "config": config_values(config), "class_name": ""}


def _class_name(values: dict[str, Any]) -> str:
    """The class that fine-tuning uses: the config's, unless it has no head or is for pre-training."""
    from transformers.models.auto import modeling_auto

    named = (values.get("architectures") or [""])[0]
    if named and not named.endswith(_UNTUNED):
        return str(named)
    kind = values.get("model_type")
    for task in _TASKS:
        classes = getattr(modeling_auto, f"MODEL_FOR_{task}_MAPPING_NAMES", {}).get(kind)
        if classes is not None:
            return str(classes if isinstance(classes, str) else classes[0])
    raise UnsupportedError(
        f"the installed transformers has no class to fine-tune for model_type {kind!r}",
        _OWN_FILES if "auto_map" in values else "upgrade transformers, or pass the module itself",
    )


def _builder(config: Any, values: dict[str, Any], class_name: str, freeze_feature_encoder: bool) -> Callable[[], Any]:
    def build() -> Any:
        import transformers

        kind = getattr(transformers, class_name, None)
        if kind is None:
            raise UnsupportedError(
                f"the installed transformers {transformers.__version__} has no {class_name}",
                _OWN_FILES if "auto_map" in values else "upgrade transformers, or pass the module itself",
            )
        try:
            # A copy: building writes to the config.
            made = transformers.AutoConfig.for_model(**values) if config is None else copy.deepcopy(config)
            model = kind(made)
        except ImportError:  # of a package that the class needs: the message names it
            raise
        except Exception as error:  # transformers and torch have no common class of errors
            reason = shortened(f"{type(error).__name__}: {' '.join(str(error).split())}")
            raise InvalidArgumentError(f"{class_name} cannot be built from the config: {reason}", _ACCEPTED) from error
        if freeze_feature_encoder:
            if not hasattr(model, "freeze_feature_encoder"):
                raise InvalidArgumentError(
                    f"{type(model).__name__} has no feature encoder to freeze", "leave freeze_feature_encoder out"
                )
            model.freeze_feature_encoder()
        return model

    return build


def structure_of(module: Any) -> str:
    """A text that changes with a module's classes, options, tensors and config, but not with its weights' values.

    It includes the source of classes outside torch and transformers.
    """
    numbers: dict[int, int] = {}  # a tensor that two names share has one number
    modules = [(name, type(m).__qualname__, m.extra_repr(), _options(m)) for name, m in module.named_modules()]
    tensors = [
        (name, list(t.shape), str(t.dtype), t.requires_grad, numbers.setdefault(id(t), len(numbers)))
        for named in (module.named_parameters, module.named_buffers)
        for name, t in named(remove_duplicate=False)
    ]
    config: Any = getattr(module, "config", None)
    shaping = _shaping(config_values(config)) if hasattr(config, "to_json_string") else None
    return fingerprint("module", modules, tensors, shaping, _own_code(module))


def _shaping(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in _NAMES_ONLY}


def _options(module: Any) -> dict[str, Any]:
    """A module's plain attributes, such as a stride that no parameter shows."""
    return {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, bool | int | float | str)
        and not name.startswith("_")
        and name not in ("training", *_NAMES_ONLY)
    }


def _own_code(module: Any) -> list[str]:
    """Digests of the user's classes, and of ``forward`` functions assigned to single modules."""
    kinds = {type(m) for m in module.modules()}
    digests = [_source(kind) for kind in kinds if kind.__module__.partition(".")[0] not in _VERSIONED]
    for m in module.modules():
        patched = vars(m).get("forward")
        if patched is not None and not hasattr(m, "_original_forward"):  # accelerate's wrapper for mixed precision
            digests.append(_function(patched))
    return sorted(digests)


def _source(kind: type) -> str:
    """A class's functions, and the file that defines it with the helpers that they call."""
    members = [(name, _function(m)) for name, m in sorted(vars(kind).items()) if inspect.isfunction(m)]
    file = None
    with contextlib.suppress(OSError, TypeError):  # a notebook's class has none
        file = inspect.getsourcefile(kind)
    text = Path(file).read_bytes() if file and Path(file).is_file() else b""
    return f"{kind.__qualname__} {fingerprint(members)} {hashlib.sha256(text).hexdigest()}"


def _function(function: Any) -> str:
    function = getattr(inspect.unwrap(function), "__func__", function)
    code = getattr(function, "__code__", None)
    return repr(function) if code is None else fingerprint(_code(code))


def _code(code: types.CodeType) -> list[Any]:
    constants = [_code(c) if isinstance(c, types.CodeType) else repr(c) for c in code.co_consts]
    return [code.co_name, code.co_code.hex(), list(code.co_names), constants]
