"""Model FLOPs utilization: how much of a step the model's own arithmetic would take at the processor's peak rate."""

from __future__ import annotations

import time
from typing import Any

from ..plan.plan_parts import Arithmetic

_SIZE, _TIMES = 768, 5  # of a product that takes some milliseconds on a core


class UsefulWork:
    """Seconds that micro-batches would take at ``rate`` FLOP/s, as arXiv 2204.02311 defines it in appendix B."""

    def __init__(self, arithmetic: Arithmetic, rate: float) -> None:
        self._arithmetic, self._rate = arithmetic, rate

    def seconds(self, clips: int, padded_s: float, named: Any) -> float:
        """Of ``clips`` padded to ``padded_s`` seconds, forward and backward; ``named`` is the model's input."""
        units = padded_s
        if self._arithmetic.unit == "labels":
            shape: Any = getattr(named.get("labels"), "shape", ())
            units = float(shape[1]) if len(shape) == 2 else 0.0
        return clips * self._arithmetic.flops(units) / self._rate


def useful_work(config: Any, device: Any) -> UsefulWork | None:
    """For a training of the plan ``config`` on a torch device; None where the plan or the rate is not known."""
    arithmetic: Arithmetic | None = getattr(config, "arithmetic", None)
    kind = getattr(device, "type", "")
    if arithmetic is None or kind not in ("cpu", "cuda"):
        return None
    rate = _cpu_rate() if kind == "cpu" else arithmetic.rate
    return UsefulWork(arithmetic, rate) if rate else None


def _cpu_rate() -> float:
    """FLOP/s of a float32 product on this CPU, the best of a few: nobody publishes it."""
    import torch

    a, fastest = torch.ones(_SIZE, _SIZE), float("inf")
    with torch.no_grad():
        for _ in range(_TIMES):
            begin = time.perf_counter()
            torch.mm(a, a)
            fastest = min(fastest, time.perf_counter() - begin)
    return 2 * _SIZE**3 / fastest
