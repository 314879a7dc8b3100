"""The batches of one optimizer step, and what must be put back to compute them again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .._errors import InfeasiblePlanError
from ..randomness import draw_seed, gpu_states, set_gpu_states
from .ranks import Ranks
from .split import like
from .weights import Totals, labels_name, totals


@dataclass
class Call:
    """One collated batch and the seed of its step."""

    inputs: Any  # None once all its clips were left out
    seed: int
    replacements: list[Any] = field(default_factory=list)
    """Batches that the user's function made of clips that were too long."""
    loss: Any = 0.0
    told: Any = 0.0
    """The weighted loss, and what of it the Trainer has been given."""


class Window:
    """The accumulation window that a Trainer is in: from one optimizer step to the next."""

    def __init__(self, trainer: Any, ranks: Ranks) -> None:
        self._labels, self._ranks = labels_name(trainer), ranks
        self.changing = running_statistics(trainer.model)  # once: large models have thousands of modules
        self.clear()

    def clear(self) -> None:
        """Forget the batches."""
        self.totals, self.left_out, self.calls = Totals(), Totals(), list[Call]()
        self.planned = self._seed = 0
        self._gpu: list[Any] = []
        self._statistics: list[tuple[Any, Any]] = []

    def collecting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The Trainer's way to fetch a window's batches, which begins one here."""

        def get_batch_samples(batches: Any, count: int, *args: Any, **kwargs: Any) -> Any:
            ready = self._ranks.fetched(batches, count)
            batches, items = original(ready, count, *args, **kwargs)
            self.clear()
            mine = Totals()
            for batch in batches:
                mine.add(totals(batch, self._labels))
            self.totals, self.planned = self._ranks.summed(mine), len(batches)
            return batches, items

        return get_batch_samples

    def begin(self, inputs: Any) -> Call:
        """Note one more batch; with the first, what its forward changes."""
        if not self.calls:
            # One number a window: later epochs' orders do not depend on how many batches an optimizer step takes.
            self._seed = draw_seed()
            self._gpu = gpu_states()
            self._statistics = [(buffer, buffer.detach().clone()) for buffer in self.changing]
        # A copy: compute_loss may take labels out of what it is given.
        self.calls.append(Call(like(inputs, dict(inputs)), (self._seed + len(self.calls)) % 2**31))
        return self.calls[-1]

    @property
    def complete(self) -> bool:
        """Whether the batch begun last is the last one of its optimizer step."""
        return len(self.calls) >= self.planned

    @property
    def of_single_samples(self) -> bool:
        """Whether no batch of it, in any process, has more than one sample."""
        return 0 < self.totals.samples <= self.planned * self._ranks.size

    def rewind(self) -> None:
        """Put back what there was when the window began."""
        set_gpu_states(self._gpu)
        for buffer, value in self._statistics:
            buffer.copy_(value)

    def leave_out(self, samples: Any) -> None:
        """Count ``samples``, a batch, no more; the gradient is scaled up for it when the window ends."""
        self.left_out.add(totals(samples, self._labels))

    def bring_in(self, samples: Any) -> None:
        """Count ``samples``, a batch that replaces something left out."""
        more = totals(samples, self._labels)
        self.left_out.add(Totals(-more.samples, -more.tokens))

    @property
    def nothing_left(self) -> bool:
        """Whether everything was left out, as far as this process knows; never of a rehearsal, which is no window."""
        return 0 < self.totals.samples <= self.left_out.samples

    def factor(self, rule: str, gone: Totals) -> float:
        """By what gradients and losses are too small because clips were left out, ``gone`` in all processes."""
        if not gone.samples and not int(gone.tokens):
            return 1.0
        left = Totals(self.totals.samples - gone.samples, self.totals.tokens - gone.tokens)
        share = float(left.share(rule, self.totals))
        if not share:
            raise InfeasiblePlanError(
                "every clip of an optimizer step, in all processes, is too long for the GPU",
                "cut or drop long clips before training, turn gradient checkpointing on, or take a larger GPU",
            )
        return 1.0 / share

    def tell(self, call: Call, factor: float = 1.0) -> Any:
        """The loss that the Trainer is to be given for ``call``, so that all of the window add up to the right one."""
        call.told = call.loss
        if factor != 1.0:
            call.told = factor * sum(each.loss for each in self.calls) - sum(each.told for each in self.calls[:-1])
        return call.told


def running_statistics(model: Any) -> list[Any]:
    """Buffers that a forward changes: those of batch normalisation."""
    layers = (m for m in model.modules() if getattr(m, "running_mean", None) is not None)
    return [buffer for layer in layers for buffer in layer.buffers(recurse=False)]
