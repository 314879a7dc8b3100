"""What the installed transformers can do, and replacing an attribute of one object for a while."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from transformers import PretrainedConfig, Trainer

LAYER_DROPS = ("layerdrop", "encoder_layerdrop", "decoder_layerdrop")  # of configs, and of modules


def has_any_depth() -> bool:
    """Whether it checkpoints each n-th layer alone, ``every_n_layers``: from 5.23 on."""
    return _says("modeling_utils.py", "every_n_layers:")


def can_offload_checkpoints() -> bool:
    """Whether it keeps what checkpoints save in pinned host memory, ``offload``: from 5.23 on."""
    return _says("modeling_utils.py", " offload: bool = False")


def checkpoint_options(every_n_layers: int, offload_checkpoints: bool) -> dict[str, int | bool]:
    """Transformers' keywords for checkpointing that differs from every layer on the device."""
    depth = {"every_n_layers": every_n_layers} if every_n_layers > 1 else {}
    return {**depth, **({"offload": True} if offload_checkpoints else {})}


def trainer_stops_caching() -> bool:
    """Whether the Trainer writes its own ``use_cache``, False unless asked for, into the config: from 5 on."""
    return _says("training_args.py", "use_cache:")


@functools.cache
def _says(module: str, text: str) -> bool:
    spec = importlib.util.find_spec("transformers")
    if spec is None or spec.origin is None:
        return False
    source = Path(spec.origin).with_name(module)
    return source.exists() and text in source.read_text(encoding="utf-8")


def sharded(trainer: Trainer) -> bool:
    """Whether processes hold parts of one model."""
    return bool(
        trainer.is_deepspeed_enabled
        or trainer.is_fsdp_enabled
        or getattr(trainer, "is_distributed_loading_by_transformers", False)
    )


def single_process(trainer: Trainer) -> bool:
    """Whether no other process takes part in the training."""
    return bool(trainer.args.world_size == 1 and not sharded(trainer))


def cannot_retry(trainer: Trainer) -> bool:
    """Whether forward and backward use collectives or several GPUs, so that one process cannot retry a step alone."""
    return sharded(trainer) or trainer.args.n_gpu > 1


def override(owner: object, name: str, function: object) -> Callable[[], None]:
    """Put ``function`` in the place of a method of one object; returns the function that restores it."""
    before = owner.__dict__.get(name)
    setattr(owner, name, function)

    def undo() -> None:
        if before is None:
            delattr(owner, name)
        else:
            setattr(owner, name, before)

    return undo


SpeechKind = Literal["ctc", "transducer", "seq2seq", "audio-llm"]
_TABLES = {"CTC": "ctc", "TDT": "transducer", "RNNT": "transducer"}
_LANGUAGE_MODELS = ("MULTIMODAL_LM", "IMAGE_TEXT_TO_TEXT")  # the second where a version has no first


def speech_kind(config: PretrainedConfig) -> SpeechKind | None:
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


def ends_with_frames(config: PretrainedConfig) -> bool:
    """Whether a transcript ends with the clip's frames, in CTC and in transducers, and not with a token."""
    return speech_kind(config) in ("ctc", "transducer")


def class_for(config: PretrainedConfig) -> str:
    """The class that recognises speech with ``config``: the one it names, where that is for it, else its kind's."""
    tables = [*_TABLES, "SPEECH_SEQ_2_SEQ", *_LANGUAGE_MODELS]
    classes = [_table(name)[config.model_type] for name in tables if config.model_type in _table(name)]
    named = (getattr(config, "architectures", None) or [None])[0]
    return str(named if named in classes else classes[0])


def _table(head: str) -> dict[str, str]:
    from transformers.models.auto import modeling_auto

    return getattr(modeling_auto, f"MODEL_FOR_{head}_MAPPING_NAMES", {})
