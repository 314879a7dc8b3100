"""Timers by the CPU's clock or by CUDA events, without synchronisation."""

from __future__ import annotations

import time
from typing import Any


class CPUMoments:
    """Moments by the clock of the CPU."""

    mark = staticmethod(time.perf_counter)

    def between(self, begin: float, end: float) -> float:
        """Seconds from one to the other."""
        return end - begin

    def wait(self, end: float) -> None:
        """Nothing to wait for: the CPU's moments are in the past."""


class GPUMoments:
    """Moments in the queue of the GPU: what was queued between two of them has run when the second one has passed."""

    def mark(self) -> Any:
        """Record an event now."""
        import torch

        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def between(self, begin: Any, end: Any) -> float:
        """Seconds from one to the other; both must have passed."""
        return float(begin.elapsed_time(end)) / 1000

    def wait(self, end: Any) -> None:
        """Until ``end`` has passed."""
        end.synchronize()


def moments_of(model: Any) -> Any:
    """The timer for the device that ``model`` computes on."""
    on_gpu = any(parameter.is_cuda for parameter in model.parameters())
    return GPUMoments() if on_gpu else CPUMoments()
