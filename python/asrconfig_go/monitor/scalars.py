"""A monitor's figures for the Trainer's reporters: names and finite numbers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..view.units import GIB

if TYPE_CHECKING:
    from .memory_monitor import MemorySnapshot
    from .run_log import Activity

PREFIX = "asrconfig/"


def scalars(shot: MemorySnapshot, activity: Activity, waited: float | None, useful: float | None) -> dict[str, float]:
    """``asrconfig/gpu0_memory_used_gib`` and so on; what is not known is left out.

    ``waited`` is the share of the time since the last log that was spent waiting for the loader, ``useful`` what the
    model's arithmetic takes of it at the peak rate.
    """
    figures: dict[str, float | None] = {
        "host_memory_used_gib": _gib(shot.host_used),
        "host_memory_fraction": shot.host_fraction,
        "host_cpu_utilization": activity.cpu_share,
        "training_cpu_utilization": activity.tree_cpu_share,
        "workers_rss_gib": _gib(activity.workers_rss_bytes),
        "loader_wait_share": waited,
        "model_flops_utilization": useful,
    }
    for i, gpu in enumerate(shot.gpus):
        figures |= {
            f"gpu{i}_memory_used_gib": _gib(gpu.used),
            f"gpu{i}_memory_fraction": gpu.fraction,
            f"gpu{i}_headroom_gib": _gib(gpu.headroom),
            f"gpu{i}_torch_allocated_gib": _gib(gpu.allocated),
            f"gpu{i}_torch_reserved_gib": _gib(gpu.reserved),
        }
    for i, busy in enumerate(activity.gpus):
        names = ("utilization", "tensor_active", "power_w", "temperature_c")
        figures |= {f"gpu{i}_{name}": getattr(busy, name) for name in names}
    return {PREFIX + name: round(x, 4) for name, x in figures.items() if x is not None and math.isfinite(x)}


def _gib(size: float | None) -> float | None:
    return None if size is None else size / GIB
