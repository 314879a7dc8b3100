"""The loss and the gradient norm of each clip of a window alone, measured once something went wrong."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from .._base.errors import AsrConfigError
from .._base.out_of_memory import classify, clear_frames, first_line, free_memory
from .._base.random_state import set_cpu_state
from ..batching.collated_batch import batch_size, copied, split
from ..batching.padding import each_trimmed
from ..memory.probe import gradients_aside
from ..recovery.loop import Call, Loop
from ..recovery.rule_measurement import steady, untouched
from ..recovery.step_state import StepState

MOST_GRADIENTS = 64  # clips; each takes a forward and a backward pass


@dataclass
class ClipAlone:
    """Clip ``number`` of what is left of the window's batch ``call``; None where it could not be measured."""

    call: Call
    number: int
    loss: float | None = None
    gradient_norm: float | None = None
    error: str = ""
    """What the model raises on it."""

    def fails(self) -> bool:
        """Whether it raises an error, or its loss or gradient is not finite."""
        values = (self.loss, self.gradient_norm)
        return bool(self.error) or any(value is not None and not math.isfinite(value) for value in values)


class ClipMeasurement:
    """Computes clips of a loop's window alone, padded as in their batch unless asked otherwise, and leaves no trace.

    In evaluation mode, where nothing is random; ``training`` computes them as the step did, from its random numbers.
    """

    def __init__(self, loop: Loop, state: StepState, split: Callable[[Any, int], list[Any]] | None) -> None:
        self._loop, self._state, self._split = loop, state, split

    def losses(self, calls: list[Call], training: bool = False, own_padding: bool = False) -> list[ClipAlone]:
        """The loss of every clip of ``calls``, or the error that it raises.

        ``own_padding`` computes each without the padding to the longest clip and text of its batch.
        """
        clips = [
            ClipAlone(call, i) for call in calls if call.inputs is not None for i in range(batch_size(call.inputs))
        ]

        def measure(clip: ClipAlone, part: Any) -> None:
            with torch.no_grad():
                clip.loss = float(self._loss(clip.call, part, training))

        with untouched(self._loop, self._state):
            self._measure_all(clips, measure, own_padding)
        return clips

    def gradients(self, clips: list[ClipAlone], training: bool = False) -> None:
        """The gradient norm of the first clips, the largest losses first; adds it to them."""
        weights = [p for p in self._loop.parameters() if p.requires_grad]

        def measure(clip: ClipAlone, part: Any) -> None:
            for p in weights:
                p.grad = None
            with torch.enable_grad():
                self._loss(clip.call, part, training).backward()
            norms = [p.grad.float().norm() for p in weights if p.grad is not None]
            clip.gradient_norm = float(torch.stack(norms).norm()) if norms else 0.0

        losses = [-math.inf if c.loss is None else c.loss if math.isfinite(c.loss) else math.inf for c in clips]
        largest = [clips[i] for i in sorted(range(len(clips)), key=lambda i: -losses[i])[:MOST_GRADIENTS]]
        with untouched(self._loop, self._state), gradients_aside(weights):
            self._measure_all(largest, measure)

    def _measure_all(
        self, clips: list[ClipAlone], measure: Callable[[ClipAlone, Any], None], own_padding: bool = False
    ) -> None:
        """Measure clips until a batch cannot be split or memory runs out."""
        parts: dict[int, list[Any]] = {}
        for clip in clips:
            try:
                if id(clip.call) not in parts:
                    batch = clip.call.inputs
                    padded = parts[id(clip.call)] = (self._split or split)(batch, 1)
                    if own_padding:
                        parts[id(clip.call)] = each_trimmed(batch, padded, self._loop.model)
                measure(clip, parts[id(clip.call)][clip.number])
            except AsrConfigError:
                return
            except Exception as error:  # whatever a model raises on one clip is what is asked
                clear_frames(error)
                if classify(error)["class"] != "other":
                    break
                clip.error = f"{type(error).__name__}: {first_line(error)}".rstrip(".")
        free_memory()

    def _loss(self, call: Call, part: Any, training: bool) -> Any:
        model = self._loop.model
        if training:
            self._loop.prepare()
            set_cpu_state(call.before.random)
            return self._loop.loss(call, copied(part))
        model.eval()
        with steady(model, 0):
            return self._loop.loss(call, copied(part))


def broken(model: Any) -> str:
    """The first weight that has values which are not finite, "" where all are."""
    for name, p in model.named_parameters():
        if p.is_floating_point() and not math.isfinite(float(p.detach().sum(dtype=torch.float32))):  # without a copy
            return str(name)
    return ""


def probes(model: Any) -> Iterator[Any]:
    """Two trained weights near the input: a gradient that is not finite reaches them from wherever it comes."""
    trained = [p for p in model.parameters() if p.requires_grad][:16]
    yield from sorted(trained, key=lambda p: int(p.numel()))[:2]
