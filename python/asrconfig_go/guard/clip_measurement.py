"""The loss and the gradient norm of each clip alone, and the norm of each step."""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from .._core.batches import batch_size, copied, split
from .._core.out_of_memory import classify, clear_frames, first_line, free_memory
from .._core.padding import trimmed_clips
from .._core.random_state import set_cpu_state
from .._core.training_session import replace_method
from ..errors import AsrConfigError
from ..predict.probe import gradients_aside
from .loop import Batch, Call, Loop, Split
from .rule_measurement import steady, untouched
from .step_state import StepState

if TYPE_CHECKING:
    from transformers import Trainer


MOST_GRADIENTS = 64  # clips; each takes a forward and a backward pass
FACTOR = 10.0  # times the median of the recent steps
RECENT, LEAST = 50, 20  # steps, and how many of them are needed


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

    def __init__(self, loop: Loop, state: StepState, split: Split | None) -> None:
        self._loop, self._state, self._split = loop, state, split

    def losses(self, calls: list[Call], training: bool = False, own_padding: bool = False) -> list[ClipAlone]:
        """The loss of every clip of ``calls``, or the error that it raises.

        ``own_padding`` computes each without the padding to the longest clip and text of its batch.
        """
        clips = [
            ClipAlone(call, i) for call in calls if call.inputs is not None for i in range(batch_size(call.inputs))
        ]

        def measure(clip: ClipAlone, part: Batch) -> None:
            with torch.no_grad():
                clip.loss = float(self._loss(clip.call, part, training))

        with untouched(self._loop, self._state):
            self._measure_all(clips, measure, own_padding)
        return clips

    def gradients(self, clips: list[ClipAlone], training: bool = False) -> None:
        """The gradient norm of the first clips, the largest losses first; adds it to them."""
        weights = [p for p in self._loop.parameters() if p.requires_grad]

        def measure(clip: ClipAlone, part: Batch) -> None:
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
                        parts[id(clip.call)] = trimmed_clips(batch, padded, self._loop.model)
                measure(clip, parts[id(clip.call)][clip.number])
            except AsrConfigError:
                return
            except Exception as error:  # whatever a model raises on one clip is what is asked
                clear_frames(error)
                if classify(error)["class"] != "other":
                    break
                clip.error = f"{type(error).__name__}: {first_line(error)}".rstrip(".")
        free_memory()

    def _loss(self, call: Call, part: Batch, training: bool) -> Any:
        model = self._loop.model
        if training:
            self._loop.prepare()
            set_cpu_state(call.before.random)
            return self._loop.loss(call, copied(part))
        model.eval()
        with steady(model, 0):
            return self._loop.loss(call, copied(part))


def broken(model: torch.nn.Module) -> str:
    """The first weight that has values which are not finite, "" where all are."""
    for name, p in model.named_parameters():
        if p.is_floating_point() and not math.isfinite(float(p.detach().sum(dtype=torch.float32))):  # without a copy
            return str(name)
    return ""


def probes(model: torch.nn.Module) -> Iterator[Any]:
    """Two trained weights near the input: a gradient that is not finite reaches them from wherever it comes."""
    trained = [p for p in model.parameters() if p.requires_grad][:16]
    yield from sorted(trained, key=lambda p: int(p.numel()))[:2]


class GradientNorms:
    """Keeps the norms that clipping the gradients of a loop returns, once in each optimizer step.

    A norm is copied to the host while the optimizer runs, and read when the next window begins: nothing waits for it.
    """

    def __init__(self) -> None:
        self._recent: deque[float] = deque(maxlen=RECENT)
        self._least = 0.0  # of them, or below
        self._host: torch.Tensor | None = None
        self._event: torch.cuda.Event
        self._undo: Callable[[], None] = lambda: None
        self.newest: float | torch.Tensor | None = None
        """The norm of the newest step, unless it is known to be usual; until ``look``."""
        self.scaled = False
        """Whether a loss scaler skips steps whose gradients overflow, as it is meant to."""
        self.clips_on_cpu = False
        """Whether gradients are clipped, and their norm is known at once."""
        self.not_finite: Callable[[], None] = lambda: None
        """Called when such a norm is not finite, before weights change."""

    def follow(self, trainer: Trainer) -> None:
        """Note what ``clip_grad_norm_`` of this Trainer's accelerator returns."""
        self.remove()
        accelerator = trainer.accelerator
        scaler = getattr(accelerator, "scaler", None)
        self.scaled = scaler is not None and bool(scaler.is_enabled())
        clip = accelerator.clip_grad_norm_

        def clip_grad_norm_(*args: object, **kwargs: object) -> Any:
            norm = clip(*args, **kwargs)
            self.note(norm)
            return norm

        self._undo = replace_method(trainer, "guard", "accelerator.clip_grad_norm_", clip_grad_norm_)

    def remove(self) -> None:
        """Leave the accelerator as it was found."""
        self._undo()
        self._undo, self.newest, self.clips_on_cpu = (lambda: None), None, False
        self._recent.clear()
        self._least = 0.0

    def note(self, norm: float | torch.Tensor | None) -> None:
        """The norm of the optimizer step that is being made."""
        if isinstance(norm, torch.Tensor) and norm.is_cuda:
            self.newest = self._on_its_way(norm)
        elif norm is not None:
            self.clips_on_cpu, norm = True, float(norm)
            if norm <= FACTOR * self._least:  # then it is not far above their median either
                self._recent.append(norm)
                self._least = min(norm, self._least)
                return
            self.newest = norm
            if not math.isfinite(norm) and not self.scaled:
                self.not_finite()

    def _on_its_way(self, norm: torch.Tensor) -> torch.Tensor:
        if self._host is None:
            self._host, self._event = torch.empty((), pin_memory=True), torch.cuda.Event()
        self._host.copy_(norm.detach().reshape(()), non_blocking=True)
        self._event.record()
        return self._host

    def look(self) -> tuple[float, float] | None:
        """The norm of the step that is over, and the median of those before, where that is unusual; else None."""
        newest, self.newest = self.newest, None
        if newest is None:
            return None
        if self._host is not None and newest is self._host:
            self._event.synchronize()
        norm = float(newest)
        if not math.isfinite(norm):
            return None if self.scaled else (norm, math.nan)
        recent, usual = self._recent, math.inf
        if len(recent) >= LEAST and norm > FACTOR * min(recent):
            usual = statistics.median(recent)
        recent.append(norm)
        self._least = min(recent)
        return (norm, usual) if norm > FACTOR * usual > 0 else None
