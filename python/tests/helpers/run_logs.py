"""Run logs as a monitor would save them, as JSON objects."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from asrconfig_go.watch.telemetry import GPUMemory, MemorySnapshot
from asrconfig_go.watch.watch_records import Activity, Alert, GPUActivity

GIB, MIB = 2**30, 2**20
START = 1_790_000_000  # wall clock of second 0
STEP_COLUMNS = (
    "spent_s", "waited_s", "audio_s", "padded_s", "longest_s", "arithmetic_s", "allocated_bytes", "reserved_bytes",
    "peak_allocated_bytes", "peak_reserved_bytes", "headroom_bytes",
)  # fmt: skip
HOST_COLUMNS = (
    "cpu_share", "tree_cpu_share", "busiest_core", "host_available_bytes", "swap_used_bytes", "tree_rss_bytes",
    "workers_rss_bytes", "shm_used_bytes", "disk_read_bytes_s", "disk_written_bytes_s", "net_received_bytes_s",
    "net_sent_bytes_s",
)  # fmt: skip
GPU_COLUMNS = (
    "utilization", "memory_busy", "sm_active", "tensor_active", "power_w", "temperature_c", "clock_mhz",
    "throttle", "pcie_received_bytes_s",
    "pcie_sent_bytes_s", "nvlink_bytes_s", "ecc_uncorrected", "others_bytes",
)  # fmt: skip

Json = dict[str, Any]


def empty(gpus: int = 0, name: str = "NVIDIA L4") -> Json:
    """A monitor that was stopped before it saw anything."""
    gpu = {"name": name, "total_bytes": 24 * GIB, "power_limit_w": 72.0, "max_clock_mhz": 2040.0, "mig": False}
    return {
        "version": 1,
        "start_unix_nanos": START * 10**9,
        "duration_s": 0.0,
        "interval_s": 0.1,
        "samples": 0,
        "errors": 0,
        "gpus": [{**gpu, "uuid": f"GPU-{i}"} for i in range(gpus)],
        "host": {"total_bytes": 32 * GIB, "cpus": 8, "shm_total_bytes": 16 * GIB, "contained": True},
        "memory": {
            "times_s": [],
            "samples_a_point": 1,
            "host_used_bytes": [],
            "gpu_used_bytes": [[] for _ in range(gpus)],
        },
        "activity": {
            "times_s": [],
            **{name: [] for name in HOST_COLUMNS},
            "gpus": [{name: [] for name in GPU_COLUMNS} for _ in range(gpus)],
        },
        "steps": {"number": [], "times_s": [], "kind": [], "covers": [], "gpu": [], **{n: [] for n in STEP_COLUMNS}},
        "events": [],
        "alerts": [],
    }


def put_memory(run_log: Json, at_s: float, host: float | None, *gpus: float | None) -> None:
    """A point of the fast series."""
    memory = run_log["memory"]
    memory["times_s"].append(at_s)
    memory["host_used_bytes"].append(host)
    for column, used in zip(memory["gpu_used_bytes"], gpus, strict=True):
        column.append(used)
    _reach(run_log, at_s)


def put_activity(run_log: Json, at_s: float, *gpus: Json, **host: float | None) -> None:
    """A row of the slow series; what is left out is not known."""
    activity = run_log["activity"]
    activity["times_s"].append(at_s)
    for name in HOST_COLUMNS:
        activity[name].append(host.get(name))
    for rows, known in zip(activity["gpus"], gpus, strict=True):
        for name in GPU_COLUMNS:
            rows[name].append(known.get(name))
    _reach(run_log, at_s)


def put_step(
    run_log: Json, at_s: float, number: int, kind: str = "train", gpu: int = -1, covers: int = 1, **known: float | None
) -> None:
    """A step that ended at ``at_s``."""
    steps = run_log["steps"]
    for name, value in (("times_s", at_s), ("number", number), ("kind", kind), ("gpu", gpu), ("covers", covers)):
        steps[name].append(value)
    for name in STEP_COLUMNS:
        steps[name].append(known.get(name))
    _reach(run_log, at_s)


def put_event(run_log: Json, at_s: float, kind: str, text: str, gpu: int = -1) -> None:
    run_log["events"].append({"at_s": at_s, "kind": kind, "gpu": gpu, "text": text})


def put_alert(run_log: Json, at_s: float, kind: str, text: str, gpu: int = -1, **known: Any) -> None:
    alert = {
        "id": len(run_log["alerts"]) + 1,
        "at_s": at_s,
        "kind": kind,
        "gpu": gpu,
        "severity": "warn",
        "since_step": None,
        "since_s": None,
        "bytes_per_step": None,
        "bytes_per_s": None,
        "steps_left": None,
        "seconds_left": None,
        "text": text,
        "advice": "",
        "cleared_s": None,
    }
    run_log["alerts"].append({**alert, **known})


def _reach(run_log: Json, at_s: float) -> None:
    run_log["duration_s"] = max(run_log["duration_s"], float(at_s))
    run_log["samples"] = round(run_log["duration_s"] / run_log["interval_s"])


def saved(run_log: Json, path: Path) -> Path:
    """The run log as a monitor writes it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(run_log))
    return path


def finite(values: list[float | None]) -> list[float]:
    return [v for v in values if v is not None and math.isfinite(v)]


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
