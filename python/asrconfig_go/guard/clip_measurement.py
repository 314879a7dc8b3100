"""The loss and the gradient norm of each clip of a window alone, measured once something went wrong."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from .._base.errors import AsrConfigError
from .._base.out_of_memory import clear_frames, free_memory
from ..batching.collated_batch import batch_size, copied, split
from ..memory.probe import gradients_aside
from .accumulation_window import Call, Window
from .measured_losses import one_number
from .measurement import measuring, steady

MOST_GRADIENTS = 64  # clips; each takes a forward and a backward pass


@dataclass
class ClipAlone:
    """Clip ``number`` of what is left of the window's batch ``call``; None where it could not be measured."""

    call: Call
    number: int
    loss: float | None = None
    gradient_norm: float | None = None

    def fails(self) -> bool:
        """Whether its loss or its gradient is not finite."""
        return any(value is not None and not math.isfinite(value) for value in (self.loss, self.gradient_norm))


class ClipMeasurement:
    """Computes clips of a Trainer's window by themselves, with their batch's padding, and leaves no trace.

    In evaluation mode, where nothing is random; ``training`` computes them as the step did, from its random numbers.
    """

    def __init__(self, trainer: Any, window: Window, split: Callable[[Any, int], list[Any]] | None) -> None:
        self._trainer, self._window, self._split = trainer, window, split

    def losses(self, model: Any, calls: list[Call], items: Any, training: bool = False) -> list[ClipAlone]:
        """The loss of every clip of ``calls``."""
        found = _clips(calls)

        def measure(clip: ClipAlone, part: Any) -> None:
            with torch.no_grad():
                clip.loss = float(self._loss(model, part, items, clip.call if training else None))

        with measuring(self._trainer, model, self._window.state):
            self._each(found, measure)
        return found

    def gradients(self, model: Any, clips: list[ClipAlone], items: Any) -> None:
        """The gradient norm of the first clips, the largest losses first; adds it to them."""
        weights = [p for p in model.parameters() if p.requires_grad]

        def measure(clip: ClipAlone, part: Any) -> None:
            for p in weights:
                p.grad = None
            with torch.enable_grad():
                self._loss(model, part, items).backward()
            found = [p.grad for p in weights if p.grad is not None]
            clip.gradient_norm = float(torch.stack([g.float().norm() for g in found]).norm()) if found else 0.0

        largest = sorted(clips, key=lambda clip: -_order(clip.loss))[:MOST_GRADIENTS]
        with measuring(self._trainer, model, self._window.state), gradients_aside(weights):
            self._each(largest, measure)

    def _each(self, clips: list[ClipAlone], measure: Callable[[ClipAlone, Any], None]) -> None:
        """Measure clips until one cannot be: a batch that cannot be split, or memory that does not reach."""
        parts: dict[int, list[Any]] = {}
        try:
            for clip in clips:
                of = parts.setdefault(id(clip.call), []) or parts[id(clip.call)]
                if not of:
                    of += (self._split or split)(clip.call.inputs, 1)
                measure(clip, of[clip.number])
        except AsrConfigError:
            return
        except Exception as error:  # whatever a model raises on one clip: what was measured counts
            clear_frames(error)
        free_memory()

    def _loss(self, model: Any, part: Any, items: Any, as_in: Call | None = None) -> Any:
        trainer, attributes = self._trainer, self._window.attributes
        if as_in is not None:
            model.train()
            as_in.begin_again(attributes)
            with trainer.compute_loss_context_manager():
                return one_number(
                    trainer, trainer.compute_loss(model, _prepared(trainer, part), num_items_in_batch=items)
                )
        with steady(model, attributes), trainer.compute_loss_context_manager():
            return one_number(trainer, trainer.compute_loss(model, _prepared(trainer, part), num_items_in_batch=items))


def _prepared(trainer: Any, part: Any) -> Any:
    return trainer._prepare_inputs(copied(part))


def _clips(calls: list[Call]) -> list[ClipAlone]:
    return [ClipAlone(call, i) for call in calls if call.inputs is not None for i in range(batch_size(call.inputs))]


def _order(loss: float | None) -> float:
    return -math.inf if loss is None else math.inf if not math.isfinite(loss) else loss


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
