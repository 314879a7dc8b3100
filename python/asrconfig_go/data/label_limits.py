"""The limit of a clip's labels: the frames that a model makes of it, or the positions of its decoder."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .._base import native
from .._base.defaults import SAMPLING_RATE
from .._base.errors import InvalidArgumentError
from .._base.files import user_path
from .._base.json_files import config_values, read_object

IGNORED = -100  # label value that the losses of transformers leave out
_RATE = SAMPLING_RATE
_HINT = "pass a model, its config, a known name, or a function from seconds to frames"


@dataclass(frozen=True)
class Limits:
    """The limit of the model ``name``: ``frames`` as a function of samples (CTC), or the ``positions`` of a decoder.

    Labels that begin with ``start`` lose it in the collator, as the decoder prepends it again.
    """

    name: str
    frames: Callable[[int], int] = lambda samples: 0
    positions: int | None = None
    start: int | None = None

    def available(self, seconds: float) -> int:
        """The frames or positions of a clip."""
        return max(0, self.frames(round(seconds * _RATE))) if self.positions is None else self.positions

    def needed(self, labels: Sequence[Any]) -> int:
        """The frames or positions that labels take: CTC needs one more between two equal ones."""
        if self.positions is None:
            return len(labels) + repeats(labels)
        return len(labels) - (len(labels) > 0 and self.start is not None and labels[0] == self.start)


def repeats(labels: Sequence[Any]) -> int:
    """How many labels are equal to the one before."""
    return sum(map(lambda a, b: bool(a == b), labels, labels[1:]))


# Defaults that transformers' saved configurations omit, by model_type.
_CONV: dict[str, Any] = {"conv_kernel": (10, 3, 3, 3, 3, 2, 2), "conv_stride": (5, 2, 2, 2, 2, 2, 2)}
_DEFAULTS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("wav2vec2", "hubert", "wavlm", "unispeech", "unispeech-sat", "data2vec-audio"), _CONV),
    "whisper": {"max_target_positions": 448},
    "speech_to_text": {"max_target_positions": 1024},
}
_FAMILIES = {"wav2vec2": "wav2vec2", "w2v-bert": "wav2vec2-bert", "whisper": "whisper"}


def limits_of(model: Any) -> Limits:
    """Read the limits from a name, a folder, a config, or a model; or take a function from seconds to frames."""
    config = getattr(model, "config", model)
    if isinstance(config, str | os.PathLike):
        name = os.fspath(config)
        return _of_config(_named(name), name)
    if isinstance(config, dict):
        return _of_config(config, str(config.get("model_type", "model")))
    if hasattr(config, "to_json_string"):
        return _of_config(config_values(config), str(config.model_type))
    if callable(config):
        return Limits("model", lambda samples: int(config(samples / _RATE)))
    raise InvalidArgumentError(f"cannot determine the frames of a {type(config).__name__}", _HINT)


def _named(name: str) -> dict[str, Any]:
    if name.lower() in _FAMILIES:
        return {"model_type": _FAMILIES[name.lower()]}
    file = user_path(name, "model") / "config.json"
    if file.is_file():
        return read_object(file, "model's config", "save the model again")
    config: dict[str, Any] = native.call("model.config", {"name": name})["config"]
    return config


def _of_config(config: dict[str, Any], name: str) -> Limits:
    config = {**_DEFAULTS.get(str(config.get("model_type")), {}), **config}
    decoder = config.get("decoder") or {}
    positions = config.get("max_target_positions") or decoder.get("max_position_embeddings")
    if not positions and config.get("is_encoder_decoder"):  # as in Moonshine and Canary: the decoder's own, at the top
        inner = config.get("decoder_config") or {}
        positions = inner.get("max_position_embeddings") or config.get("max_position_embeddings")
    if positions:
        return Limits(name, positions=int(positions), start=config.get("decoder_start_token_id"))
    if config.get("model_type") == "wav2vec2-bert":
        return Limits(name, lambda samples: _mel_frames(samples, config))
    if config.get("conv_kernel") and config.get("conv_stride"):
        return Limits(name, lambda samples: _conv_frames(samples, config))
    raise InvalidArgumentError(f"cannot determine how many frames {name} makes of a clip", _HINT)


def _conv_frames(samples: int, config: dict[str, Any]) -> int:
    """``_get_feat_extract_output_lengths`` of Wav2Vec2, HuBERT, WavLM and similar models."""
    for kernel, stride in zip(config["conv_kernel"], config["conv_stride"], strict=True):
        samples = (samples - kernel) // stride + 1
    if config.get("add_adapter"):
        for _ in range(config.get("num_adapter_layers", 3)):
            samples = (samples - 1) // config.get("adapter_stride", 2) + 1
    return samples


def _mel_frames(samples: int, config: dict[str, Any]) -> int:
    """SeamlessM4TFeatureExtractor: windows of 25 ms every 10 ms, two of them a frame; then Wav2Vec2Bert's adapter."""
    frames = (1 + (samples - 400) // 160) // 2
    if config.get("add_adapter"):
        kernel = config.get("adapter_kernel_size", 3)
        for _ in range(config.get("num_adapter_layers", 1)):
            frames = (frames + 2 * (kernel // 2) - kernel) // config.get("adapter_stride", 2) + 1
    return frames
