"""A monitor with fixed figures, as far as an endpoint asks for them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from asrconfig_go.monitor.memory_monitor import GPUMemory, MemorySnapshot
from asrconfig_go.monitor.run_log import Activity, Alert, GPUActivity
from run_logs import GIB, GPU_COLUMNS, HOST_COLUMNS

HOSTILE = 'A "card" \\ of\n{several="lines"} 1\n\x1b'


def alert(number: int, cleared_s: float | None = None, gpu: int = 0) -> Alert:
    return Alert(number, 1.0, "leak", gpu, "warn", None, None, None, None, None, None, HOSTILE, "", cleared_s)


@dataclass
class Watcher:
    """As much of a monitor as an endpoint asks for."""

    gpu_names: tuple[str, ...] = (HOSTILE, "NVIDIA L4")
    running: bool = True
    alert_changes: int = 3
    known: dict[str, Any] = field(default_factory=lambda: {"utilization": 0.5, "throttle": 2.0, "clock_mhz": 1905.5})

    def read(self) -> MemorySnapshot:
        cards = (
            GPUMemory(24 * GIB, 20 * GIB, 4 * GIB, 21 * GIB, GIB, 2 * GIB, 5 * GIB),
            GPUMemory(None, None, None, None),
        )
        return MemorySnapshot(1.0, 100, 2, 32 * GIB, 8 * GIB, 9 * GIB, cards[: len(self.gpu_names)])

    def activity(self) -> Activity:
        cards = (dict.fromkeys(GPU_COLUMNS) | self.known, dict.fromkeys(GPU_COLUMNS))
        host: dict[str, Any] = dict.fromkeys(HOST_COLUMNS) | {"cpu_share": 0.25}
        return Activity(at_s=1.0, **host, gpus=tuple(GPUActivity(**c) for c in cards[: len(self.gpu_names)]))

    def alerts(self) -> tuple[Alert, ...]:
        return (alert(1), alert(2, cleared_s=2.0), alert(3), alert(4, gpu=-1))
