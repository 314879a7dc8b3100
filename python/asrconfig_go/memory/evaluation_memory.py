"""The memory of an evaluation, from the simulation of one of its batches."""

from __future__ import annotations

from typing import Any

from .estimate import EvaluationMemory
from .memory_settings import MemorySettings, Shape

_RESIDENT = ("parameters", "buffers", "optimizer")
_USUAL_TOKENS = 448  # what Whisper generates at most


def evaluation_of(
    shape: Shape, found: dict[str, Any], held: dict[str, list[int]], about: dict[str, Any], settings: MemorySettings
) -> EvaluationMemory:
    """Read the simulation of evaluation batches of this shape; ``held`` is each component over one batch's events."""
    outputs = max(held.get("outputs", [0]))
    return EvaluationMemory(
        batch=shape.batch,
        seconds=shape.seconds,
        peak_allocated=found["peak_allocated"],
        peak_reserved=found["peak_reserved"],
        resident_bytes=sum(max(held.get(name, [0])) for name in _RESIDENT),
        outputs_bytes_per_sample=round(outputs / shape.batch),
        generation_cache_bytes=_generation_cache(shape.batch, about, settings.precision),
    )


def _generation_cache(batch: int, about: dict[str, Any], precision: str) -> int | None:
    if not about.get("decoder_layers"):
        return None
    tokens = int(about.get("max_labels") or _USUAL_TOKENS)
    item = 4 if precision == "fp32" else 2
    return generation_cache_bytes(
        int(about["decoder_layers"]), int(about["decoder_width"]), tokens, int(about["source_frames"]), batch, item
    )


def generation_cache_bytes(
    layers: int, width: int, tokens: int, source_frames: int, batch: int, item_bytes: int, beams: int = 1
) -> int:
    """The key-value cache of generating: a key and a value of ``width`` (heads × head size) for each token generated
    and, for cross-attention, each frame of the source, in each layer, sample and beam
    (transformers.cache_utils.EncoderDecoderCache).
    """
    return 2 * layers * width * (tokens + source_frames) * item_bytes * batch * beams
