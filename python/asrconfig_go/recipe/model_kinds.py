"""Whether a model name is a CTC model or Whisper."""

from __future__ import annotations

from typing import Any

from .._base import native
from .._base.errors import AsrConfigError, CorruptFileError, UnsupportedError
from .._base.files import user_path
from .._base.json_files import read_object

_AGAIN = "save the model again"
TINY_CTC, TINY_WHISPER = "tiny-wav2vec2", "tiny-whisper"
_CTC = ("wav2vec2", "wav2vec2-bert", "hubert", "wavlm", "data2vec-audio", "unispeech", "unispeech-sat", "sew", "sew-d")


def is_here(model: str) -> bool:
    """Whether the processor of ``model`` needs no files."""
    return model in (TINY_CTC, TINY_WHISPER, "wav2vec2")


def family(model: str) -> str:
    """``"ctc"`` or ``"whisper"`` by a model's name, folder or configuration on the Hub.

    Raises ``UnsupportedError`` for models of another kind, ``NotFoundError`` for what cannot be loaded.
    """
    if is_here(model):
        return "whisper" if model == TINY_WHISPER else "ctc"
    kind = _model_type(model)
    if kind == "whisper":
        return kind
    if kind in _CTC:
        return "ctc"
    raise UnsupportedError(f"{model!r} is a {kind}, not one of {', '.join(_CTC)} or whisper", "choose one of those")


def _model_type(model: str) -> str:
    file = user_path(model, "model") / "config.json"
    if file.is_file():
        found = read_object(file, "model's config", _AGAIN).get("model_type")
        if not isinstance(found, str):
            raise CorruptFileError(f"{file} has no model_type", _AGAIN)
        return found
    try:
        known: dict[str, Any] = native.call("model.config", {"name": model})["config"]
        return str(known["model_type"])
    except AsrConfigError:
        return _type_on_hub(model)


def _type_on_hub(model: str) -> str:
    from transformers import AutoConfig

    from .._base.hub_downloads import OFFLINE, from_hub

    config = from_hub("the model", model, lambda: AutoConfig.from_pretrained(model), OFFLINE)
    return str(config.model_type)
