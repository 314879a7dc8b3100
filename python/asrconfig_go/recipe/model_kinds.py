"""Which kind of speech model a name is: by its config, as transformers' tables have it."""

from __future__ import annotations

from typing import Any

from .._core.transformers_features import SpeechKind, speech_kind
from ..errors import CorruptFileError, UnsupportedError
from ..trace.model import Model
from ..trace.tiny_models import TINY

TINY_CTC, TINY_WHISPER = "tiny-wav2vec2", "tiny-whisper"


def is_here(model: str) -> bool:
    """Whether the processor of ``model`` needs no files."""
    return model in TINY or model == "wav2vec2"


def family(model: str) -> SpeechKind:
    """The kind by a model's name, folder or configuration on the Hub.

    Raises ``UnsupportedError`` for models of another kind, ``NotFoundError`` for what cannot be loaded.
    """
    config = config_of(model)
    kind = speech_kind(config)
    if kind is None:
        raise UnsupportedError(
            f"{model!r} is a {config.model_type}, which no class of transformers recognises speech with",
            "choose a model for CTC, a transducer, an encoder and a decoder, or an audio LLM (docs/audio-llms.md)",
        )
    return kind


def config_of(model: str) -> Any:
    """The transformers config of a name, a folder, or a repository on the Hub."""
    from transformers import AutoConfig, __version__

    values = Model.of(model).config_json
    if not isinstance(values.get("model_type"), str):
        raise CorruptFileError(f"the config of {model!r} has no model_type", "save the model again")
    try:
        return AutoConfig.for_model(**values)
    except ValueError as error:
        raise UnsupportedError(
            f"transformers {__version__} does not know {values['model_type']}, which {model!r} is",
            "pip install -U transformers",
        ) from error


def by_characters(model: str) -> bool:
    """Whether a CTC model's vocabulary is made of the transcripts' characters, with a new head.

    So it is where transformers pairs a model with wav2vec2's processor, or with none; other processors of CTC models
    have a vocabulary that belongs to the checkpoint.
    """
    from transformers.models.auto.processing_auto import PROCESSOR_MAPPING_NAMES

    config = config_of(model)
    name = PROCESSOR_MAPPING_NAMES.get(config.model_type) or ""
    return speech_kind(config) == "ctc" and (not name or name.startswith("Wav2Vec2"))
