"""PyTorch's own counters of GPU memory, read when a training step ends."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

LOOK_AGAIN = 50  # steps between two looks at which devices this process uses


_Stats = dict[str, Any]  # nested by the binding, flat by torch.cuda.memory_stats


class Counters(NamedTuple):
    """Bytes of one device in this process; the peaks are since the reading before."""

    gpu: int
    allocated: int
    reserved: int
    peak_allocated: int
    peak_reserved: int


class TorchCounters:
    """Reads the devices that this process has memory on; none without PyTorch, or before CUDA is initialised.

    ``reset_peaks``: every reading lets PyTorch's peaks start again, so that a step's peak is its own. A
    ``torch.cuda.max_memory_allocated()`` of the user then counts from the last step; False leaves the peaks alone, and
    they are those since they were last reset.
    """

    def __init__(self, reset_peaks: bool = True) -> None:
        self.reset_peaks = reset_peaks
        self._devices: list[int] = []
        self._countdown = 0

    def read(self) -> list[Counters]:
        """The counters now, one entry per device in use."""
        cuda = getattr(sys.modules.get("torch"), "cuda", None)
        if cuda is None or not cuda.is_initialized():
            return []
        stats, reset = _functions(cuda)
        if self._countdown == 0:
            self._devices = [i for i in range(cuda.device_count()) if _counters(stats, i).reserved]
            self._countdown = LOOK_AGAIN
        self._countdown -= 1
        readings = [_counters(stats, device) for device in self._devices]
        if self.reset_peaks:
            for device in self._devices:
                reset(device)
        return readings


def _functions(cuda: ModuleType) -> tuple[Callable[[int], _Stats], Callable[[int], None]]:
    """The binding itself where there is one: ``torch.cuda.memory_stats`` sorts a hundred names at every call."""
    binding = sys.modules["torch"]._C
    if hasattr(binding, "_cuda_memoryStats") and hasattr(binding, "_cuda_resetPeakMemoryStats"):
        return binding._cuda_memoryStats, binding._cuda_resetPeakMemoryStats
    return cuda.memory_stats, cuda.reset_peak_memory_stats


def _counters(stats: Callable[[int], _Stats], device: int) -> Counters:
    counters = stats(device)
    if "allocated_bytes" in counters:
        allocated, reserved = counters["allocated_bytes"]["all"], counters["reserved_bytes"]["all"]
        return Counters(device, allocated["current"], reserved["current"], allocated["peak"], reserved["peak"])
    names = (f"{kind}_bytes.all.{value}" for value in ("current", "peak") for kind in ("allocated", "reserved"))
    return Counters(device, *(counters.get(name, 0) for name in names))
