"""The batches of one optimizer step, and what must be put back to compute them again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..randomness import draw_seed, gpu_states, set_gpu_states
from .split import like
from .weights import Totals, labels_name, totals


@dataclass
class Call:
    """One collated batch, and the seed of its step."""

    inputs: Any
    seed: int


class Window:
    """The accumulation window that a Trainer is in: from one optimizer step to the next."""

    def __init__(self, trainer: Any) -> None:
        self._labels = labels_name(trainer)
        self._changing = _changing(trainer.model)  # once: large models have thousands of modules
        self.clear()

    def clear(self) -> None:
        """Forget the batches."""
        self.totals, self.calls = Totals(), list[Call]()
        self._gpu: list[Any] = []
        self._statistics: list[tuple[Any, Any]] = []

    def collecting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The Trainer's way to fetch a window's batches, which begins one here."""

        def get_batch_samples(*args: Any, **kwargs: Any) -> Any:
            batches, items = original(*args, **kwargs)
            self.clear()
            for batch in batches:
                self.totals.add(totals(batch, self._labels))
            return batches, items

        return get_batch_samples

    def begin(self, inputs: Any) -> Call:
        """Note one more batch; with the first, what its forward changes."""
        if not self.calls:
            self._gpu = gpu_states()
            self._statistics = [(buffer, buffer.detach().clone()) for buffer in self._changing]
        # A copy: compute_loss may take labels out of what it is given.
        self.calls.append(Call(like(inputs, dict(inputs)), draw_seed()))
        return self.calls[-1]

    def rewind(self) -> None:
        """Put back what there was when the window began."""
        set_gpu_states(self._gpu)
        for buffer, value in self._statistics:
            buffer.copy_(value)


def _changing(model: Any) -> list[Any]:
    """Buffers that a forward changes: the running statistics of batch normalisation."""
    layers = (m for m in model.modules() if getattr(m, "running_mean", None) is not None)
    return [buffer for layer in layers for buffer in layer.buffers(recurse=False)]
