"""A monitor's figures for the Trainer's reporters: names and finite numbers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..view.units import GIB

if TYPE_CHECKING:
    from .memory_monitor import GPUMemory, MemorySnapshot
    from .run_log import Activity, GPUActivity

PREFIX = "asrconfig/"


def scalars(shot: MemorySnapshot, activity: Activity, waited: float | None, useful: float | None) -> dict[str, float]:
    """``asrconfig/gpu0_memory_used_gib`` and so on; what is not known is left out.

    ``waited`` is the share of the time since the last log that was spent waiting for the loader, ``useful`` what the
    model's arithmetic takes of it at the peak rate.
    """
    found: dict[str, float | None] = {}
    for i, gpu in enumerate(shot.gpus):
        found.update(_memory(f"gpu{i}", gpu))
    for i, busy in enumerate(activity.gpus):
        found.update(_busy(f"gpu{i}", busy))
    found.update(_host(shot, activity))
    found["loader_wait_share"], found["model_flops_utilization"] = waited, useful
    return {PREFIX + name: round(x, 4) for name, x in found.items() if x is not None and math.isfinite(x)}


def _memory(name: str, gpu: GPUMemory) -> dict[str, float | None]:
    return {
        f"{name}_memory_used_gib": _gib(gpu.used),
        f"{name}_memory_fraction": gpu.fraction,
        f"{name}_headroom_gib": _gib(gpu.headroom),
        f"{name}_torch_allocated_gib": _gib(gpu.allocated),
        f"{name}_torch_reserved_gib": _gib(gpu.reserved),
    }


def _busy(name: str, busy: GPUActivity) -> dict[str, float | None]:
    return {
        f"{name}_utilization": busy.utilization,
        f"{name}_tensor_active": busy.tensor_active,
        f"{name}_power_w": busy.power_w,
        f"{name}_temperature_c": busy.temperature_c,
    }


def _host(shot: MemorySnapshot, activity: Activity) -> dict[str, float | None]:
    return {
        "host_memory_used_gib": _gib(shot.host_used),
        "host_memory_fraction": shot.host_fraction,
        "host_cpu_utilization": activity.cpu_share,
        "training_cpu_utilization": activity.tree_cpu_share,
        "workers_rss_gib": _gib(activity.workers_rss_bytes),
    }


def _gib(size: float | None) -> float | None:
    return None if size is None else size / GIB
