"""Computes the clips of a saved batch one by one, in the training's precision and in others."""

from __future__ import annotations

import contextlib
import math
import statistics
from dataclasses import dataclass
from typing import Any

import torch

from .._core.batches import batch_size, piece
from .._core.checks import Precision
from .._core.out_of_memory import clear_frames, first_line, free_memory
from .._core.padding import each_trimmed
from .._core.random_state import cpu_generators_kept, set_cpu_state
from ..guard.saved_batch import state_of_plain
from ..predict.probe import gradients_aside

MOST_TIMES = 3.0  # the median gradient norm of the batch's clips
_EXACTER: dict[Precision, tuple[Precision, ...]] = {"fp16": ("bf16", "fp32"), "bf16": ("fp32",), "fp32": ()}
_DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}


@dataclass(frozen=True)
class Replayed:
    """Loss and gradient norm of what was computed, and the peak of the GPU's allocator; ``error`` where it raised."""

    loss: float | None
    gradient_norm: float | None
    memory_bytes: int | None
    error: str = ""

    @property
    def finite(self) -> bool:
        """Whether it was computed, and is finite."""
        return all(value is not None and math.isfinite(value) for value in (self.loss, self.gradient_norm))


class Replays:
    """Runs parts of saved batches through ``model``, with the random numbers that the training had before each."""

    def __init__(self, model: torch.nn.Module, device: Any, precision: Precision, random: list[dict[str, Any]]) -> None:
        self._model, self._device, self._precision = model, device, precision
        self._random = [state_of_plain(state) for state in random]

    def clips(self, number: int, batch: dict[str, Any], training: bool = False) -> list[Replayed]:
        """Every clip of batch ``number`` alone, with the batch's padding, or without it where that makes all fail."""
        parts = [piece(batch, i, i + 1) for i in range(batch_size(batch))]
        padded = [self.run(number, part, training) for part in parts]
        if len(padded) > 1 and all(clip.error for clip in padded):
            unpadded = [self.run(number, part, training) for part in each_trimmed(batch, parts, self._model)]
            return unpadded if any(clip.error for clip in unpadded) else padded
        return padded

    def in_other_precisions(self, number: int, batch: dict[str, Any], i: int) -> dict[str, float | None]:
        """The loss of clip ``i`` in the precisions that reach further than the training's."""
        others = _EXACTER[self._precision]
        return {other: self.run(number, piece(batch, i, i + 1), False, other).loss for other in others}

    def run(
        self, number: int, part: dict[str, Any], training: bool = False, precision: Precision | None = None
    ) -> Replayed:
        """Compute a part of batch ``number``, or all of it."""
        gpu = self._device.type == "cuda"
        if gpu:
            torch.cuda.reset_peak_memory_stats(self._device)
        try:
            loss, gradient = self._computed(number, part, training, precision or self._precision)
            return Replayed(loss, gradient, torch.cuda.max_memory_allocated(self._device) if gpu else None)
        except Exception as error:  # whatever a model raises on a bad clip is the answer
            clear_frames(error)
            return Replayed(None, None, None, first_line(error))
        finally:
            free_memory()

    def _computed(
        self, number: int, part: dict[str, Any], training: bool, precision: Precision
    ) -> tuple[float, float | None]:
        inputs = {name: v.to(self._device) if hasattr(v, "to") else v for name, v in part.items()}
        model, mode = self._model, self._model.training
        with cpu_generators_kept(), gradients_aside(list(model.parameters())):
            set_cpu_state(self._random[number])
            dtype = _DTYPES.get(precision)
            try:
                with torch.autocast(self._device.type, dtype=dtype) if dtype else contextlib.nullcontext():
                    out = model.train(training)(**inputs)
            finally:
                model.train(mode)
            loss = out["loss"] if isinstance(out, dict) else out[0]
            loss.backward()
            gradients = [p.grad.float().norm() for p in model.parameters() if p.grad is not None]
            return float(loss.detach()), float(torch.stack(gradients).norm()) if gradients else 0.0


def standing_out(clips: list[Replayed]) -> list[bool]:
    """Whether each is to blame: it is not finite, or its gradient norm is far above the median of those that are."""
    if not all(clip.finite for clip in clips):
        return [not clip.finite for clip in clips]
    norms = [clip.gradient_norm or 0.0 for clip in clips]
    usual = statistics.median(norms) if len(norms) > 1 else math.inf
    return [norm > MOST_TIMES * usual for norm in norms]
