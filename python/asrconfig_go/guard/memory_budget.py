"""Micro-batches by the memory that their lengths are predicted to take."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from .._core.batches import Extent
from .._core.declared import OVERHEAD_S
from .._core.defaults import SAMPLING_RATE
from ..errors import InvalidArgumentError
from ..predict.memory_limits import GRID_S
from ..predict.shape_traces import by_formulas
from .micro_batches import Budget
from .oom_snapshots import Predicted

if TYPE_CHECKING:
    from transformers import Trainer

    from ..predict.calibration import BatchFunction
    from ..predict.memory_model import MemoryModel


_WINDOW = 3  # micro-batches of a traced step: the first, one with gradients beside it, and the last
_PATIENCE = 100  # optimizer steps without a failure before the limit grows
_GROWTH = 1.25


def traced_for(
    trainer: Trainer, gpu: str | None = None, *, whole_steps: bool = False, batch_fn: BatchFunction | None = None
) -> MemoryModel:
    """The memory model of a trainer's training, on this machine's GPU or one of the catalogue.

    The allocator is simulated with the settings that are in effect here. The guard may split any batch, so that
    gradients of one micro-batch are held during the next one also where the Trainer itself accumulates none. The
    Trainer holds the inputs of all micro-batches that it accumulates; ``whole_steps`` is whether it gets a step in one
    batch, so that there are no others. ``batch_fn`` is what the model was planned with.
    """
    from ..predict.calibration import training_settings
    from ..predict.memory_model import MemoryModel
    from ..predict.memory_settings import allocator_in_force

    settings = training_settings(trainer.args, trainer.model)
    settings["accumulation"] = _WINDOW if whole_steps else max(settings["accumulation"], _WINDOW)
    return MemoryModel.trace(trainer.model, batch_fn, gpu=gpu, allocator=allocator_in_force(), **settings)


class MemoryBudget(Budget):
    """As many samples of each length as the memory model predicts to fit.

    After a micro-batch has not fitted nevertheless, half of it is the limit, as in ``Budget``. It grows by a quarter
    after 100 optimizer steps without a failure, as far as the model predicts that it fits; when it then fails again,
    the next attempt waits twice as long.
    """

    def __init__(
        self,
        memory: MemoryModel,
        limit_bytes: int | None = None,
        samples: int | None = None,
        overhead_s: float = OVERHEAD_S,
    ) -> None:
        super().__init__(samples, overhead_s)
        if limit_bytes is None and memory.target.limit_bytes is None:
            raise InvalidArgumentError(
                "the memory model has no GPU given", 'trace it with gpu="L4", or pass memory_limit_bytes'
            )
        self._memory, self._limit = memory, limit_bytes
        self.rate: float = float(memory.about.get("length_per_second") or SAMPLING_RATE)
        self._fits: dict[int, int] = {}
        self._waited, self._patience = 0, _PATIENCE

    def size(self, extent: Extent, limit: int) -> int:
        """The samples of a micro-batch, 1 to ``limit``, whose longest one has this extent."""
        return min(super().size(extent, limit), self.predicted(extent.length / self.rate))

    def predicted(self, seconds: float) -> int:
        """The largest micro-batch of clips of this duration that is predicted to fit, at least 1."""
        step = max(1, math.ceil(seconds / GRID_S - 1e-9))
        if step not in self._fits:
            with by_formulas(self._memory):
                self._fits[step] = max(1, self._memory.largest_batch(step * GRID_S, self._limit))
        return self._fits[step]

    def prediction(self, samples: int, extent: Extent, kind: str) -> Predicted | None:
        """The predicted memory of micro-batches of this shape; transcripts are assumed to have a usual length."""
        from ..predict.memory_settings import Shape

        seconds = extent.length / self.rate
        with by_formulas(self._memory):
            question = self._memory.step_request(Shape(samples, seconds, None))
        return Predicted(samples, seconds, {**question, "kind": kind, "limit_bytes": None})

    def shrink(self, extent: Extent, size: int) -> None:
        """From now on, for a while, no more than ``size`` samples of this extent."""
        if self.values is not None:
            self._patience *= 2
        super().shrink(extent, size)
        self._waited = 0

    def step_done(self) -> None:
        """Count an optimizer step without a failure, and grow after enough of them."""
        if self.values is not None:
            self._waited += 1
            if self._waited >= self._patience:
                self.values, self._waited = math.ceil(self.values * _GROWTH), 0
