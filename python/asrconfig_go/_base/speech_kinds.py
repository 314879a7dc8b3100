"""The kind of speech recognition that a config is for, as transformers' own tables of classes have it."""

from __future__ import annotations

from typing import Any, Literal

SpeechKind = Literal["ctc", "transducer", "seq2seq", "audio-llm"]
_TABLES = {"CTC": "ctc", "TDT": "transducer", "RNNT": "transducer"}
_LANGUAGE_MODELS = ("MULTIMODAL_LM", "IMAGE_TEXT_TO_TEXT")  # the second where a version has no first


def speech_kind(config: Any) -> SpeechKind | None:
    """The kind of speech recognition of a transformers config; None for other models.

    An audio LLM is a decoder without cross-attention, into whose prompt the audio's features go.
    """
    kind = next((kind for table, kind in _TABLES.items() if config.model_type in _table(table)), None)
    if kind is not None:
        return kind  # type: ignore[return-value]
    if config.model_type in _table("SPEECH_SEQ_2_SEQ"):
        return "seq2seq" if getattr(config, "is_encoder_decoder", False) else "audio-llm"
    hears = any(hasattr(config, name) for name in ("audio_config", "encoder_config")) and hasattr(config, "text_config")
    return "audio-llm" if hears and any(config.model_type in _table(name) for name in _LANGUAGE_MODELS) else None


def ends_with_frames(config: Any) -> bool:
    """Whether a transcript ends with the clip's frames, in CTC and in transducers, and not with a token."""
    return speech_kind(config) in ("ctc", "transducer")


def class_for(config: Any) -> str:
    """The class that recognises speech with ``config``: the one it names, where that is for it, else its kind's."""
    tables = [*_TABLES, "SPEECH_SEQ_2_SEQ", *_LANGUAGE_MODELS]
    classes = [_table(name)[config.model_type] for name in tables if config.model_type in _table(name)]
    named = (getattr(config, "architectures", None) or [None])[0]
    return str(named if named in classes else classes[0])


def _table(head: str) -> dict[str, str]:
    from transformers.models.auto import modeling_auto

    return getattr(modeling_auto, f"MODEL_FOR_{head}_MAPPING_NAMES", {})
