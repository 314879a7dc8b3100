"""A monitor whose figures are scripted, and a clock that is moved by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from asrconfig_go._core.records import json_fields
from asrconfig_go.watch.telemetry import GPUMemory, MemorySnapshot
from asrconfig_go.watch.watch_records import (
    Activity,
    Alert,
    GPUActivity,
    GPUHistory,
    MemoryCheck,
    MemoryHistory,
    MemoryUse,
    MonitorMessage,
)

GIB = 1 << 30


class Clock:
    """Seconds that pass when they are told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class MovedMoments:
    """A GPU's queue: what is marked takes place when a test says so."""

    def __init__(self) -> None:
        self.now, self.waited, self.marks = 0.0, 0, 0

    def mark(self) -> float:
        self.marks += 1
        return self.now

    def between(self, begin: float, end: float) -> float:
        return end - begin

    def wait(self, end: float) -> None:
        self.waited += 1


def gpu(used: float, total: float = 10.0, allocated: float | None = None, reserved: float | None = None) -> GPUMemory:
    """A GPU's memory in GiB, PyTorch's counters with it if they are given."""
    free = total - used
    room = free + ((reserved or 0.0) - (allocated or 0.0) if allocated is not None else 0.0)
    sizes = [None if x is None else int(x * GIB) for x in (total, used, free, used, allocated, reserved, room)]
    return GPUMemory(*sizes)


def alert(number: int, text: str, **known: Any) -> Alert:
    """One that holds, of the first GPU."""
    usual = {"id": number, "text": text, "kind": "leak", "severity": "warn", "advice": "", "at_s": 0.0, "gpu": 0}
    return Alert(**{**dict.fromkeys(json_fields(Alert)), **usual, **known})


def activity(*gpus: Mapping[str, float | None], **host: float | None) -> Activity:
    """What is given; all else is not known."""
    rows = tuple(GPUActivity(**{**dict.fromkeys(json_fields(GPUActivity)), **one}) for one in gpus)
    known: dict[str, Any] = {**dict.fromkeys(json_fields(Activity)), **host, "gpus": rows}
    return Activity(**known)


class FakeMonitor:
    """Gives the GPUs of ``shots``, one after the other at each step, the last one for ever; a host of 100 GiB.

    What it is told is kept in ``steps`` and ``events``, the limits it was asked about in ``limits``. ``messages`` are
    those of the next check, and ``clean_up`` is its answer. ``fail`` is raised by ``check`` when it is an exception.
    """

    def __init__(self, shots: Any = ((),), host: float = 25.0) -> None:
        self.shots = [shot if isinstance(shot, tuple) else (shot,) for shot in shots]
        self.host, self.running, self.stops = host, True, 0
        self.steps: list[dict[str, Any]] = []
        self.events: list[tuple[str, str]] = []
        self.saved: list[Path] = []
        self.warned: list[Any] = []
        self.messages: list[MonitorMessage] = []
        self.limits: list[Any] = []
        self.clean_up = False
        self.alert_changes = 0
        self.now = activity()
        self.fail: Exception | None = None

    @property
    def gpus(self) -> tuple[GPUMemory, ...]:
        return self.shots[min(max(len(self.steps) - 1, 0), len(self.shots) - 1)]

    def step(self, number: int | None = None, *, kind: str = "train", **known: Any) -> None:
        self.steps.append({"number": number, "kind": kind, **{k: v for k, v in known.items() if v is not None}})

    def event(self, kind: str, text: str, gpu: int = -1) -> None:
        self.events.append((kind, text))

    def check(self, limits: Mapping[str, float] | None = None) -> MemoryCheck:
        if self.fail is not None:
            raise self.fail
        self.limits.append(limits)
        messages, self.messages = tuple(self.messages), []
        fullest = next((MemoryUse(0, g.headroom, g.total) for g in self.gpus if g.headroom and g.total), None)
        return MemoryCheck(fullest, self.clean_up, messages, self.alert_changes, int(self.clean_up))

    def read(self) -> MemorySnapshot:
        return MemorySnapshot(1.0, 7, 1, 100 * GIB, int(self.host * GIB), int(self.host * GIB), self.gpus)

    def activity(self) -> Any:
        return self.now

    def history(self, max_points: int = 0) -> MemoryHistory:
        times = tuple(float(i) for i in range(len(self.steps) or 1))
        used = tuple(each.used for each in self.gpus)
        return MemoryHistory(
            0,
            times,
            1,
            100 * GIB,
            tuple(int(self.host * GIB) for _ in times),
            tuple(
                GPUHistory(each.total or 0, tuple(size for _ in times))
                for each, size in zip(self.gpus, used, strict=True)
            ),
        )

    def warn(self, *alerts: Any) -> None:
        """Let these be all warnings; the next check tells of them."""
        self.warned, self.alert_changes = list(alerts), self.alert_changes + 1
        self.messages = [MonitorMessage(alert.severity, alert.text) for alert in alerts]

    def alerts(self) -> tuple[Any, ...]:
        return tuple(self.warned)

    def run_log(self) -> Any:
        raise AssertionError("its run log must not be read")

    def save(self, path: Any) -> None:
        self.saved.append(Path(path))

    def stop(self) -> None:
        self.running, self.stops = False, self.stops + 1


def makes(*monitors: FakeMonitor) -> Callable[[], Any]:
    """What makes these, one after the other."""
    left = list(monitors)
    return lambda: left.pop(0)
