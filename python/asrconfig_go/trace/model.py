"""What a model is, recognised once: its config, class, identity and counts, what builds it, and what it takes."""

from __future__ import annotations

import copy
import importlib.util
import inspect
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from .._core import native
from .._core.batches import audio_name
from .._core.declared import RowKind
from .._core.files import config_values, fingerprint, read_object, user_path
from .._core.modules import bare, task_classes
from .._core.output import kind_of, shortened
from .._core.requirements import from_hub
from ..errors import AsrConfigError, InvalidArgumentError, NotFoundError, UnsupportedError
from .model_structure import shaping, structure_of
from .tiny_models import TINY

if TYPE_CHECKING:
    from torch import nn
    from transformers import PretrainedConfig

    from .made_up_batches import SpeechBatches


ModelKind = Literal["module", "function", "config", "folder", "name", "counts"]

_ACCEPTED = (
    "pass a torch.nn.Module, a function that builds one, a transformers config, a folder with config.json, "
    "or a known name"
)
_OWN_FILES = (
    "its code lies beside the config and is not run here: load it yourself, with trust_remote_code=True, "
    "and pass the module"
)
_UNTUNED = ("Model", "ForPreTraining")  # suffixes of classes that are not fine-tuned
# The tasks in which a class is looked up, in this order, by the names of transformers' tables.
_TASKS = (
    "CTC", "SPEECH_SEQ_2_SEQ", "TDT", "RNNT", "MULTIMODAL_LM", "MASKED_LM", "CAUSAL_LM", "SEQ_TO_SEQ_CAUSAL_LM",
    "AUDIO_CLASSIFICATION", "SEQUENCE_CLASSIFICATION",
)  # fmt: skip


def can_trace() -> bool:
    """Whether torch and transformers are installed; neither is imported for the answer."""
    return all(importlib.util.find_spec(name) is not None for name in ("torch", "transformers"))


def is_module(model: object) -> bool:
    """Whether this is a live torch module; torch is not imported for the answer."""
    return not isinstance(model, type) and callable(getattr(model, "named_parameters", None))


class _Config(NamedTuple):
    """A model's ``config.json``, a label for it, and its class where a catalogue names it, else ""."""

    label: str
    values: dict[str, Any]
    class_name: str


@dataclass(frozen=True, eq=False)
class Model:
    """A model as it was passed, and everything that is asked of it.

    ``kind`` is what was passed: a live ``"module"``, a ``"function"`` that builds one, a transformers ``"config"``
    (object or dictionary), a ``"folder"`` with ``config.json``, a ``"name"`` of the catalogue or the Hub, or
    ``"counts"``, a ``ModelProfile``. Nothing is read, built or imported before it is needed.
    """

    passed: Any
    kind: ModelKind
    freeze_feature_encoder: bool = False

    @classmethod
    def of(cls, model: object, freeze_feature_encoder: bool = False) -> Model:
        """Recognise ``model``; a ``Model`` is returned as it is. Raises ``InvalidArgumentError`` for anything else."""
        return model if isinstance(model, cls) else cls(model, _kind(model), freeze_feature_encoder)

    @property
    def is_module(self) -> bool:
        """Whether it is a live module."""
        return self.kind == "module"

    @cached_property
    def label(self) -> str:
        """A short name: the module's class, the function's name, else what the config is known by."""
        if self.is_module:
            return type(bare(self.passed)).__name__
        if self.kind == "function":
            return str(getattr(self.passed, "__name__", "model"))
        return self._config.label

    @cached_property
    def config_json(self) -> dict[str, Any]:
        """The values of ``config.json``; of a module with its own class. Raises an error for one without a config."""
        if not self.is_module:
            return self._config.values
        inside = bare(self.passed)
        return {**_values_of(getattr(inside, "config", None)), "architectures": [type(inside).__name__]}

    @cached_property
    def class_name(self) -> str:
        """The class that fine-tuning uses; "" of counts that do not name it."""
        if self.is_module:
            return type(bare(self.passed)).__name__
        if self.kind == "counts":
            return str(self.passed.class_name)
        return self._config.class_name or _class_name(self._config.values)

    @cached_property
    def identity(self) -> str | None:
        """A text that changes with everything of the model that shapes a training step.

        None for functions, whose result cannot be known without calling them. Raises ``UnsupportedError`` for a model
        that cannot be built here, ``InvalidArgumentError`` for a trainable feature encoder that is to be frozen.
        """
        if self.kind == "function":
            return None
        if not self.is_module:
            return fingerprint("config", self.class_name, shaping(self._config.values), self.freeze_feature_encoder)
        encoder = (p.requires_grad for name, p in self.passed.named_parameters() if "feature_extractor." in name)
        if self.freeze_feature_encoder and any(encoder):
            raise InvalidArgumentError(
                "freeze_feature_encoder=True, but the module's feature encoder is trainable",
                "call model.freeze_feature_encoder() first: a live module is taken as it is",
            )
        return structure_of(self.passed)

    def build(self) -> nn.Module:
        """A new module with random weights, as fine-tuning makes it; the live one of a module."""
        if self.kind in ("module", "function"):
            return cast("nn.Module", self.passed if self.is_module else self.passed())
        model = self._built()
        if self.freeze_feature_encoder:
            if not hasattr(model, "freeze_feature_encoder"):
                raise InvalidArgumentError(
                    f"{type(model).__name__} has no feature encoder to freeze", "leave freeze_feature_encoder out"
                )
            model.freeze_feature_encoder()
        return model

    @cached_property
    def batches(self) -> SpeechBatches | None:
        """How to feed it, by its config; None where that is not known, or torch is not installed."""
        if not can_trace() or self.kind in ("function", "counts"):
            return None
        from .made_up_batches import known_batches

        as_it_is = self.is_module or (self.kind == "config" and not isinstance(self.passed, dict))
        try:
            return known_batches(self.passed if as_it_is else SimpleNamespace(**self._config.values))
        except AsrConfigError:  # an unknown name, or a folder without a config
            return None

    @cached_property
    def row_kind(self) -> RowKind:
        """``"texts"`` of a model whose ``forward`` takes tokens and nothing to hear, else ``"clips"``.

        Known names are those of speech models.
        """
        takes = self._forward()
        return "texts" if "input_ids" in takes and audio_name(takes) is None else "clips"

    @property
    def catalogued(self) -> bool:
        """Whether it is a name whose parameters the catalogue has counted."""
        return self.kind == "name" and bool(self._config.class_name)

    @cached_property
    def _config(self) -> _Config:
        model = self.passed
        if self.kind == "counts":
            raise UnsupportedError(f"{model.name or 'the model'} has only its counts", _ACCEPTED)
        if self.kind == "name":
            return _named(os.fspath(model))
        if self.kind == "folder":
            path = user_path(model, "model")
            return _Config(path.name, read_object(path / "config.json", "model's config", "save the model there"), "")
        if self.kind == "config":
            values = _values_of(model)
            return _Config(str(values.get("model_type", "config")), values, "")
        raise _unknown(model, _ACCEPTED)

    def _config_object(self) -> PretrainedConfig:
        """A config of transformers of its own: building a model writes to it."""
        if self.kind == "config" and not isinstance(self.passed, dict):
            return copy.deepcopy(self.passed)
        from transformers import AutoConfig

        return AutoConfig.for_model(**self._config.values)

    def _built(self) -> Any:
        import transformers

        kind = getattr(transformers, self.class_name, None)
        if kind is None:
            raise UnsupportedError(
                f"the installed transformers {transformers.__version__} has no {self.class_name}",
                _no_class_hint(self._config.values),
            )
        try:
            return kind(self._config_object())
        except ImportError:  # of a package that the class needs: the message names it
            raise
        except Exception as error:  # transformers and torch have no common class of errors
            reason = shortened(f"{type(error).__name__}: {' '.join(str(error).split())}")
            raise InvalidArgumentError(
                f"{self.class_name} cannot be built from the config: {reason}", _ACCEPTED
            ) from error

    def _forward(self) -> list[str]:
        """The arguments of ``forward``, and the settings of the config: audio as tokens shows nowhere else."""
        if self.is_module:
            kind: Any = bare(self.passed)
            config = getattr(self.passed, "config", None)
            settings = list(config) if isinstance(config, dict) else list(getattr(config, "__dict__", ()))
        elif self.kind in ("config", "folder") and can_trace():
            import transformers

            try:
                kind, settings = getattr(transformers, self.class_name, None), list(self._config.values)
            except AsrConfigError:
                return []
        else:
            return []
        return [*inspect.signature(kind.forward).parameters, *settings] if hasattr(kind, "forward") else []


def _kind(model: object) -> ModelKind:
    if is_module(model):
        return "module"
    if hasattr(model, "total_parameters"):
        return "counts"
    if callable(model):
        return "function"
    if isinstance(model, str | os.PathLike):
        return "folder" if user_path(model, "model").is_dir() else "name"
    if isinstance(model, dict) or (hasattr(model, "model_type") and hasattr(model, "to_json_string")):
        return "config"
    raise _unknown(model, _ACCEPTED)


def _unknown(model: object, accepted: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"cannot read a model from {kind_of(model)}", accepted)


def _values_of(config: object) -> dict[str, Any]:
    if isinstance(config, dict):
        return config
    if hasattr(config, "to_json_string"):
        return config_values(config)
    raise InvalidArgumentError("the model has no config of transformers", "pass a model of transformers")


def _named(name: str) -> _Config:
    """The config of a name. Raises ``NotFoundError`` for one that neither the catalogue nor the Hub knows."""
    if name in TINY:
        return _Config(name, TINY[name], TINY[name]["architectures"][0])
    try:
        known = native.call("model.config", {"name": name})
        return _Config(known["name"], known["config"], known["class_name"])
    except NotFoundError as unknown:
        if name.count("/") != 1 or importlib.util.find_spec("transformers") is None:
            raise
        from transformers import AutoConfig

        config = from_hub("the config of", name, lambda: AutoConfig.from_pretrained(name), unknown.hint)
        return _Config(name, config_values(config), "")


def _class_name(values: Mapping[str, Any]) -> str:
    """The class that fine-tuning uses: the config's, unless it has no head or is for pre-training."""
    named = (values.get("architectures") or [""])[0]
    if named and not named.endswith(_UNTUNED):
        return str(named)
    kind = values.get("model_type")
    for task in _TASKS:
        classes = task_classes(task).get(str(kind))
        if classes is not None:
            return str(classes if isinstance(classes, str) else classes[0])
    raise UnsupportedError(
        f"the installed transformers has no class to fine-tune for model_type {kind!r}", _no_class_hint(values)
    )


def _no_class_hint(values: Mapping[str, Any]) -> str:
    return _OWN_FILES if "auto_map" in values else "upgrade transformers, or pass the module itself"


def generation_facts(config: object) -> dict[str, int]:
    """Sizes of a decoder's key-value cache, for encoder-decoder models with a fixed source length."""
    layers, width = getattr(config, "decoder_layers", None), getattr(config, "d_model", None)
    source = getattr(config, "max_source_positions", None)
    if not (getattr(config, "is_encoder_decoder", False) and layers and width and source):
        return {}
    encoder = getattr(config, "encoder_layers", None) or layers
    sizes = {"decoder_layers": layers, "decoder_width": width, "source_frames": source, "encoder_layers": encoder}
    return {name: int(size) for name, size in sizes.items()}
