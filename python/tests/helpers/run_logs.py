"""Run logs as a monitor would save them, made by rule, as JSON objects."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

GIB, MIB = 2**30, 2**20
START = 1_790_000_000  # wall clock of second 0
STEP_COLUMNS = (
    "spent_s", "waited_s", "audio_s", "padded_s", "longest_s", "allocated_bytes", "reserved_bytes",
    "peak_allocated_bytes", "peak_reserved_bytes", "headroom_bytes",
)  # fmt: skip
HOST_COLUMNS = (
    "cpu_share", "busiest_core", "host_available_bytes", "swap_used_bytes", "tree_rss_bytes", "workers_rss_bytes",
    "shm_used_bytes", "disk_read_bytes_s", "disk_written_bytes_s", "net_received_bytes_s", "net_sent_bytes_s",
)  # fmt: skip
GPU_COLUMNS = (
    "utilization", "memory_busy", "power_w", "temperature_c", "clock_mhz", "throttle", "pcie_received_bytes_s",
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


def trained(
    seconds: float = 1800.0,
    gpus: int = 1,
    points: int = 1800,
    rows: int = 900,
    steps: int = 700,
    leak: bool = True,
    seed: int = 7,
) -> Json:
    """A training of ``seconds`` with an evaluation each fifth of it, and a gap; with ``leak`` it ends out of memory."""
    chance, run_log = random.Random(seed), empty(gpus)
    held = [_Held(chance, seconds, leak and i == 0) for i in range(gpus)]
    gap = (0.62 * seconds, 0.65 * seconds)
    for i in range(points):
        at = seconds * i / points
        if not gap[0] < at < gap[1]:
            put_memory(run_log, at, (9 + 8 * at / seconds) * GIB, *(int(h.used(at)) for h in held))
    for i in range(rows):
        at = seconds * i / rows
        if not gap[0] < at < gap[1]:
            put_activity(run_log, at, *(_gpu_row(chance, at, seconds) for _ in held), **_host_row(chance, at, seconds))
    _steps(run_log, chance, held, seconds, steps)
    put_event(run_log, 0.5, "training", "training begins")
    put_event(run_log, gap[1], "gap", f"no samples for {gap[1] - gap[0]:.0f} s: the machine slept")
    put_event(run_log, 0.7 * seconds, "throttled", "held back by its temperature, 84 °C", 0 if gpus else -1)
    if gpus and leak:
        _warned(run_log, seconds)
    return run_log


class _Held:
    """Memory of one GPU: PyTorch's cache over what it holds, and the context."""

    def __init__(self, chance: random.Random, seconds: float, leak: bool) -> None:
        self.chance, self.seconds, self.leak = chance, seconds, leak

    def reserved(self, at: float) -> float:
        part = at / self.seconds
        grown = min(1.0, 6 * part) * 13 + (6 * max(0.0, part - 0.75) / 0.25 * 1.5 if self.leak else 0.0)
        return (2 + grown + (2.2 if _evaluates(part) else 0.0)) * GIB

    def allocated(self, at: float) -> float:
        return self.reserved(at) * (0.55 + 0.35 * self.chance.random())

    def used(self, at: float) -> float:
        return min(24 * GIB, self.reserved(at) + 0.5 * GIB)


def _evaluates(part: float) -> bool:
    return part > 0.1 and (part * 5) % 1 > 0.93


def _gpu_row(chance: random.Random, at: float, seconds: float) -> Json:
    starved = 0.3 < at / seconds < 0.45
    busy = chance.uniform(0.25, 0.5) if starved else chance.uniform(0.82, 0.97)
    heat = 55 + 29 * min(1.0, at / (0.7 * seconds))
    hot = at > 0.7 * seconds
    return {
        "utilization": busy,
        "memory_busy": 0.6 * busy,
        "power_w": 20 + 50 * busy,
        "temperature_c": round(heat),
        "clock_mhz": 1400 if hot else 1900,
        "throttle": 2 if hot else 0,
        "pcie_received_bytes_s": 2e8 * busy,
        "pcie_sent_bytes_s": 3e7,
        "ecc_uncorrected": 0,
        "others_bytes": 0,
    }


def _host_row(chance: random.Random, at: float, seconds: float) -> Json:
    workers = int((2 + 6 * at / seconds) * GIB)
    return {
        "cpu_share": chance.uniform(0.4, 0.7),
        "busiest_core": chance.uniform(0.9, 1.0),
        "host_available_bytes": 20 * GIB - workers,
        "swap_used_bytes": 0,
        "tree_rss_bytes": workers + 4 * GIB,
        "workers_rss_bytes": workers,
        "shm_used_bytes": int(0.8 * GIB),
        "disk_read_bytes_s": 6e7 * chance.random(),
        "disk_written_bytes_s": 1e5,
        "net_received_bytes_s": 1e4,
        "net_sent_bytes_s": 1e4,
    }


def _steps(run_log: Json, chance: random.Random, held: list[_Held], seconds: float, steps: int) -> None:
    spent = seconds / max(1, steps)
    for i in range(steps):
        at = spent * (i + 1)
        part = at / seconds
        kind = "evaluation" if _evaluates(part) else "train"
        audio = 32 * chance.uniform(4, 14)
        memory: dict[str, Any] = {}
        if held:
            reserved, allocated = held[0].reserved(at), held[0].allocated(at)
            memory = {
                "allocated_bytes": int(0.4 * allocated),
                "reserved_bytes": int(reserved),
                "peak_allocated_bytes": int(allocated),
                "peak_reserved_bytes": int(reserved),
                "headroom_bytes": int(max(0, 23.5 * GIB - 0.4 * allocated)),
            }
        waited = spent * (0.5 if 0.3 < part < 0.45 else 0.04)
        known: dict[str, Any] = {
            "spent_s": spent,
            "waited_s": waited,
            "audio_s": audio,
            "padded_s": 1.2 * audio,
            "longest_s": 14.5,
        }
        put_step(run_log, at, i + 1, kind, 0 if held else -1, **known, **memory)
    for part in (0.2, 0.4, 0.6, 0.8):
        put_step(run_log, part * seconds + 0.01, round(part * steps), "checkpoint", spent_s=0.004 * seconds)
    order = sorted(range(len(run_log["steps"]["times_s"])), key=run_log["steps"]["times_s"].__getitem__)
    run_log["steps"] = {name: [column[i] for i in order] for name, column in run_log["steps"].items()}


def _warned(run_log: Json, seconds: float) -> None:
    put_alert(
        run_log, 0.32 * seconds, "workers_ram", "DataLoader workers' RAM grows 11 MB/s: the limit in about 20 min",
        seconds_left=1200.0, advice="set dataloader_num_workers=2", cleared_s=0.5 * seconds,
    )  # fmt: skip
    put_alert(
        run_log, 0.82 * seconds, "leak", "GPU memory grows 38 MB/step since step 530: out of memory in about 110 steps",
        gpu=0, severity="critical", since_step=530, bytes_per_step=38e6, steps_left=110.0, seconds_left=0.17 * seconds,
        advice="log loss.item(), not the loss",
    )  # fmt: skip
    put_event(run_log, 0.995 * seconds, "out_of_memory", "CUDA out of memory, tried to allocate 1.2 GiB", 0)


def week(gpus: int = 8) -> Json:
    """A run of seven days in all the points that a monitor keeps."""
    return trained(seconds=7 * 86400.0, gpus=gpus, points=16384, rows=8192, steps=16384)


def saved(run_log: Json, path: Path) -> Path:
    """The run log as a monitor writes it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(run_log))
    return path


def finite(values: list[float | None]) -> list[float]:
    return [v for v in values if v is not None and math.isfinite(v)]
