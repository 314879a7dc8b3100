"""One reading of a machine: all that ``asrconfig monitor`` shows, and its JSON."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from .._core.records import to_json
from .._core.render import NARROWEST, WIDEST, WIDTH, Record, text
from .memory_monitor import MemoryMonitor, MemorySnapshot
from .watch_records import Activity, Alert, RunLogGPU, RunLogHost

_LISTED_EVERY_S = 3.0  # listing the GPUs' processes is expensive
_NAME_BYTES = 64


@dataclass(frozen=True)
class CardProcess:
    """A process with memory on a GPU; None where the driver does not report its bytes, "" where /proc has no name."""

    pid: int
    name: str
    memory_bytes: int | None


@dataclass(frozen=True)
class Reading:
    """A moment; ``pid`` is the watched process, None for the monitor's own."""

    unix_s: float
    memory: MemorySnapshot
    activity: Activity
    gpus: tuple[RunLogGPU, ...]
    host: RunLogHost
    processes: tuple[tuple[CardProcess, ...], ...]
    alerts: tuple[Alert, ...]
    pid: int | None = None

    @property
    def tree_gpu_bytes(self) -> int | None:
        """GPU memory of the watched process and its descendants: of those listed what is not others'."""
        own_bytes = []
        for row, listed in zip(self.activity.gpus, self.processes, strict=False):
            sizes = [process.memory_bytes for process in listed]
            if row.others_bytes is not None and None not in sizes:
                own_bytes.append(sum(size or 0 for size in sizes) - int(row.others_bytes))
        return max(0, sum(own_bytes)) if own_bytes else None

    def to_json(self) -> Record:
        """An object with scalars and None, as ``--json`` prints it; units are in the names."""
        activity = to_json(self.activity)
        rows = activity.pop("gpus")
        gpus = []
        for i, gpu in enumerate(self.memory.gpus):
            sizes = {f"{field.name}_bytes": getattr(gpu, field.name) for field in fields(gpu)}
            more = rows[i] if i < len(rows) else {}
            fixed = to_json(self.gpus[i])
            fixed.pop("total_bytes")
            listed = [asdict(process) for process in (self.processes[i] if i < len(self.processes) else ())]
            gpus.append({"gpu": i, **fixed, **sizes, **more, "processes": listed})
        host = {"host_total_bytes": self.memory.host_total, "host_used_bytes": self.memory.host_used}
        fixed_host = {name: value for name, value in to_json(self.host).items() if name != "total_bytes"}
        return {
            "unix_s": round(self.unix_s, 3),
            "samples": self.memory.samples,
            "errors": self.memory.errors,
            "gpus": gpus,
            "host": {**host, **fixed_host, **activity},
            "pid": self.pid,
            "tree_gpu_bytes": self.tree_gpu_bytes,
            "alerts": to_json(self.alerts),
        }

    def screen(self, columns: int = WIDTH, rows: int = 0, *, coloured: bool = False, brief: bool = False) -> str:
        """For a terminal of this many rows, with one line per GPU where rows are few; ``brief``: one line in all."""
        width = max(NARROWEST, min(columns, WIDTH))
        record = {"reading": self.to_json(), "width": width, "height": rows, "coloured": coloured, "brief": brief}
        return text("screen", record, WIDEST if brief else width)


class Reader:
    """Readings of one monitor; expensive figures are read less often."""

    def __init__(self, monitor: MemoryMonitor, pid: int | None = None) -> None:
        self._monitor, self._pid = monitor, pid
        run_log = monitor.run_log()
        self._gpus, self._host = run_log.gpus, run_log.host
        self._listed_at = -_LISTED_EVERY_S
        self._processes: tuple[tuple[CardProcess, ...], ...] = ()

    def read(self) -> Reading:
        """Now."""
        alerts = self._monitor.alerts() if self._monitor.alert_changes else ()
        return Reading(
            unix_s=time.time(),
            memory=self._monitor.read(),
            activity=self._monitor.activity(),
            gpus=self._gpus,
            host=self._host,
            processes=self._listed(),
            alerts=tuple(alert for alert in alerts if alert.cleared_s is None),
            pid=self._pid,
        )

    def _listed(self) -> tuple[tuple[CardProcess, ...], ...]:
        from ..predict.hardware import HardwareProfile

        now = time.monotonic()
        if self._gpus and now - self._listed_at >= _LISTED_EVERY_S:
            self._listed_at = now
            processes = {gpu.uuid: gpu.processes for gpu in HardwareProfile.detect().gpus}
            self._processes = tuple(
                tuple(CardProcess(p.pid, process_name(p.pid), p.memory_bytes) for p in processes.get(gpu.uuid, ()))
                for gpu in self._gpus
            )
        return self._processes


def process_name(pid: int) -> str:
    """The kernel's name of a process, "" where unknown."""
    try:
        with Path(f"/proc/{pid}/comm").open("rb") as file:
            return file.read(_NAME_BYTES).decode(errors="replace").strip()
    except OSError:
        return ""
