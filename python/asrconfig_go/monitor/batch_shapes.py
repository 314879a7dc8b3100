"""The batches that a model is given, by their shapes.

A hook before the model's forward is the one place that needs neither the Trainer nor its loader, sees the micro-batches
that are really computed, after a guard has split them too, and comes before any memory of theirs is taken.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ..batching.batch_lengths import time_axis
from ..memory.worst_batch import per_second
from .messages import BestEffort
from .useful_work import UsefulWork

_NAMES = ("input_values", "input_features")
_PIECES_A_SECOND = 10  # at which masks are looked at

BeforeBatch = Callable[[int, float], Any]
"""Called with clips and seconds of the longest one, padding included."""


class BatchShapes:
    """Adds up the batches of ``model`` between two calls of ``take``, until ``leave``.

    ``before_training`` is called before each forward of a training, and ``work`` counts its arithmetic. Durations are
    those of the model's input, which some models pad to a fixed length (Whisper). Durations without padding are only
    known where the attention mask is in host memory: reading it from a GPU would wait for the GPU.
    """

    def __init__(self, model: Any, before_training: BeforeBatch | None = None, work: UsefulWork | None = None) -> None:
        self._model, self._before, self._work = model, before_training, work
        self.arithmetic_s: float | None = None
        """Of all trainings so far; None where it is not known."""
        self._careful = BestEffort("lengths of batches are not recorded")
        self._rates: dict[str, float | None] = {}
        self._padded = self._longest = self._audio = self._needed = 0.0
        self._all_masked = True
        self._hook = model.register_forward_pre_hook(functools.partial(self._careful, self._look), with_kwargs=True)

    def take(self) -> dict[str, float]:
        """Seconds since the last call, as ``MemoryMonitor.step`` takes them; empty where nothing is known."""
        if not self._padded:
            return {}
        totals = {"padded_s": self._padded, "longest_s": self._longest}
        if self._all_masked:
            totals["audio_s"] = min(self._audio, self._padded)
        if self._needed:
            totals["arithmetic_s"] = self._needed
            self.arithmetic_s = (self.arithmetic_s or 0.0) + self._needed
        self._padded = self._longest = self._audio = self._needed = 0.0
        self._all_masked = True
        return totals

    def leave(self) -> None:
        """Remove the hook."""
        self._hook.remove()

    def _look(self, model: Any, positional: Any, named: Any) -> None:
        for name in _NAMES:
            shape: Any = getattr(named.get(name), "shape", ())
            if len(shape) >= 2:
                break
        else:
            return
        if name not in self._rates:
            self._rates[name] = per_second(named, self._model)
        rate = self._rates[name]
        if not rate:
            return
        clips, seconds = int(shape[0]), int(shape[time_axis(named, name)]) / rate
        if self._before is not None and model.training:
            self._before(clips, seconds)
        if self._work is not None and model.training:
            self._needed += self._work.seconds(clips, seconds, named)
        self._padded += clips * seconds
        self._longest = max(self._longest, seconds)
        audio = _unpadded(named.get("attention_mask"), rate)
        self._all_masked = self._all_masked and audio is not None
        self._audio += audio or 0.0


def _unpadded(mask: Any, rate: float) -> float | None:
    """Seconds of audio by a mask in host memory, to a tenth of a second a clip."""
    if not getattr(mask, "is_cpu", False) or mask.dim() != 2 or mask.is_floating_point():
        return None
    stride = max(1, int(rate / _PIECES_A_SECOND))
    return int(np.count_nonzero(mask.numpy()[:, ::stride])) * stride / rate  # torch's sum takes twice as long
