"""What a monitor sees now: one reading as a screen and as JSON, and metrics for Prometheus with an endpoint for them.

Units of metrics are the base ones that Prometheus asks for: bytes, ratios, watts, degrees Celsius, hertz.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from .._core import native
from .._core.checks import in_range
from .._core.records import to_json
from .._core.render import NARROWEST, WIDEST, WIDTH, Record, text, visible
from .._core.requirements import imported
from ..errors import AsrConfigError, InvalidArgumentError
from .memory_monitor import MemoryMonitor
from .telemetry import MemorySnapshot
from .watch_records import Activity, Alert, RunLogGPU, RunLogHost

if TYPE_CHECKING:
    from prometheus_client.core import Metric

_LISTED_EVERY_S = 3.0  # listing the GPUs' processes is expensive
_NAME_BYTES = 64
_HOST = "127.0.0.1"
_PREFIX = "asrconfig_"

# Of each: the attribute, the metric's name, what it is, and what its unit takes to be a base one.
_GPU_MEMORY = (
    ("total", "gpu_memory_total_bytes", "Memory of the GPU."),
    ("used", "gpu_memory_used_bytes", "Memory in use on the GPU, of all processes, PyTorch's cache included."),
    ("free", "gpu_memory_free_bytes", "Memory that the driver has free."),
    ("peak", "gpu_memory_peak_bytes", "Highest use since the monitor began."),
    ("allocated", "gpu_torch_allocated_bytes", "Memory of PyTorch's tensors at the last step."),
    ("reserved", "gpu_torch_reserved_bytes", "PyTorch's cache at the last step, with what is in it."),
    ("headroom", "gpu_headroom_bytes", "What training can still allocate: free, or unused in PyTorch's cache."),
)
_GPU_ACTIVITY = (
    ("utilization", "gpu_utilization_ratio", "Share of the time that a kernel ran.", 1.0),
    ("memory_busy", "gpu_memory_busy_ratio", "Share of the time that memory was read or written.", 1.0),
    ("sm_active", "gpu_sm_active_ratio", "Share of the time that multiprocessors had work; from Hopper on.", 1.0),
    ("tensor_active", "gpu_tensor_active_ratio", "Share of the time that tensor cores computed; from Hopper on.", 1.0),
    ("power_w", "gpu_power_watts", "Power.", 1.0),
    ("temperature_c", "gpu_temperature_celsius", "Temperature.", 1.0),
    ("clock_mhz", "gpu_clock_hertz", "Clock of the multiprocessors.", 1e6),
    ("pcie_received_bytes_s", "gpu_pcie_received_bytes_per_second", "Bytes over PCIe to the GPU.", 1.0),
    ("pcie_sent_bytes_s", "gpu_pcie_sent_bytes_per_second", "Bytes over PCIe from the GPU.", 1.0),
    ("nvlink_bytes_s", "gpu_nvlink_bytes_per_second", "Bytes over NVLink.", 1.0),
    ("ecc_uncorrected", "gpu_ecc_uncorrected_errors", "Memory errors since the driver's start.", 1.0),
    ("others_bytes", "gpu_others_bytes", "Memory of other processes on the GPU.", 1.0),
)
_HOST_ACTIVITY = (
    ("cpu_share", "cpu_busy_ratio", "Share of all cores that the process may use."),
    ("tree_cpu_share", "process_tree_cpu_ratio", "Share of them that the watched process and its descendants use."),
    ("busiest_core", "cpu_busiest_core_ratio", "Share of the busiest core."),
    ("host_available_bytes", "host_memory_available_bytes", "RAM that is available, container's limit applied."),
    ("swap_used_bytes", "swap_used_bytes", "Swap in use."),
    ("tree_rss_bytes", "process_tree_resident_bytes", "RAM of the watched process and its descendants."),
    ("workers_rss_bytes", "workers_resident_bytes", "RAM of its descendants alone, such as loader workers."),
    ("shm_used_bytes", "shm_used_bytes", "Shared memory in use, of /dev/shm."),
    ("disk_read_bytes_s", "disk_read_bytes_per_second", "Bytes read from disks."),
    ("disk_written_bytes_s", "disk_written_bytes_per_second", "Bytes written to disks."),
    ("net_received_bytes_s", "network_received_bytes_per_second", "Bytes received over the network."),
    ("net_sent_bytes_s", "network_sent_bytes_per_second", "Bytes sent over the network."),
)


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


class MonitorCollector:
    """Collects what ``monitor`` sees; for a registry of one's own: ``registry.register(MonitorCollector(monitor))``."""

    def __init__(self, monitor: MemoryMonitor) -> None:
        self._monitor = monitor

    def describe(self) -> Iterator[Metric]:
        """Nothing: a registry would otherwise collect once to learn the names."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """One metric after the other; what is not known has no sample, and a metric without samples is left out.

        Of a monitor that cannot be read there is ``asrconfig_monitor_running 0`` alone.
        """
        sources = (_general, _memory, _activity, _alerts)
        try:
            metrics = [metric for source in sources for metric in source(self._monitor)]
        except AsrConfigError:
            metrics = [_running(False)]
        yield from (metric for metric in metrics if metric.samples)


def _gauge(name: str, description: str, values: Iterable[tuple[dict[str, str], float | None]]) -> Metric:
    from prometheus_client.core import Metric

    metric = Metric(_PREFIX + name, description, "gauge")
    for labels, value in values:
        if value is not None:
            metric.add_sample(metric.name, {label: visible(name) for label, name in labels.items()}, float(value))
    return metric


def _general(monitor: MemoryMonitor) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily

    snapshot = monitor.read()
    for name, description, value in (
        ("samples", "Samples taken.", snapshot.samples),
        ("sample_errors", "Readings that failed.", snapshot.errors),
        ("alerts_changed", "Alerts raised and cleared.", monitor.alert_changes),
    ):
        yield CounterMetricFamily(_PREFIX + name, description, value=value)
    yield _running(monitor.running)


def _running(running: bool) -> Metric:
    return _gauge("monitor_running", "1 while samples are taken.", [({}, int(running))])


def _memory(monitor: MemoryMonitor) -> Iterator[Metric]:
    snapshot = monitor.read()
    for attribute, name, description in _GPU_MEMORY:
        sizes = ((_named(monitor, i), getattr(gpu, attribute)) for i, gpu in enumerate(snapshot.gpus))
        yield _gauge(name, description, sizes)
    for attribute, description in (("total", "RAM, container's limit applied."), ("used", "RAM in use.")):
        yield _gauge(f"host_memory_{attribute}_bytes", description, [({}, getattr(snapshot, f"host_{attribute}"))])


def _activity(monitor: MemoryMonitor) -> Iterator[Metric]:
    now = monitor.activity()
    for attribute, name, description in _HOST_ACTIVITY:
        yield _gauge(name, description, [({}, getattr(now, attribute))])
    for attribute, name, description, unit in _GPU_ACTIVITY:
        readings = [(_named(monitor, i), getattr(gpu, attribute)) for i, gpu in enumerate(now.gpus)]
        scaled = ((labels, None if value is None else unit * value) for labels, value in readings)
        yield _gauge(name, description, scaled)
    yield _gauge(
        "gpu_throttled",
        "1 while the reason holds the clock back.",
        (
            (_named(monitor, i) | {"reason": reason}, bool(int(gpu.throttle) & bit))
            for i, gpu in enumerate(now.gpus)
            if gpu.throttle is not None
            for bit, reason in _throttles().items()
        ),
    )


@cache
def _throttles() -> dict[int, str]:
    return {row["bit"]: row["name"] for row in native.call("library.info")["throttles"]}


def _alerts(monitor: MemoryMonitor) -> Iterator[Metric]:
    active = [alert for alert in monitor.alerts() if alert.cleared_s is None]
    counts = Counter((alert.kind, "" if alert.gpu < 0 else f"{alert.gpu}", alert.severity) for alert in active)
    labels = ("kind", "gpu", "severity")
    values = ((dict(zip(labels, key, strict=True)), count) for key, count in counts.items())
    yield _gauge("alert_active", "Alerts that hold.", values)


def _named(monitor: MemoryMonitor, i: int) -> dict[str, str]:
    return {"gpu": f"{i}", "name": monitor.gpu_names[i] if i < len(monitor.gpu_names) else ""}


class MetricsServer:
    """Answers ``GET /metrics`` on 127.0.0.1 for Prometheus, from construction until ``stop`` or the end of a block.

    The server is ``prometheus_client``'s, with a thread for each connection that does not keep the process alive.

    Args:
        monitor: The monitor to read. The server does not stop it.
        port: The TCP port, 1 to 65535; 0 for a free one.

    Attributes:
        port: The port that is served.

    Raises:
        UnsupportedError: ``prometheus_client`` is not installed.
        InvalidArgumentError: The port is taken or out of range.

    Example:
        >>> with MemoryMonitor() as monitor, MetricsServer(monitor, port=9400) as server:  # doctest: +SKIP
        ...     print(server.url)
        http://127.0.0.1:9400/metrics
    """

    def __init__(self, monitor: MemoryMonitor, port: int = 0) -> None:
        in_range("port", port, 0, 65535, "pass 1 to 65535, or 0 for a free one", int)
        client = imported("prometheus_client", "the Prometheus endpoint", "pip install prometheus-client")
        registry = client.CollectorRegistry()
        registry.register(MonitorCollector(monitor))
        try:
            self._server, self._thread = client.start_http_server(port, _HOST, registry)
        except OSError as error:
            raise InvalidArgumentError(
                f"port {port} of {_HOST} cannot be taken: {error.strerror or error}", "pass another one, or 0"
            ) from error
        self.port: int = self._server.server_port
        self._running = True

    @property
    def url(self) -> str:
        """The address of the metrics."""
        return f"http://{_HOST}:{self.port}/metrics"

    def stop(self) -> None:
        """Stop the server, and free the port. Stopping twice is harmless."""
        if self._running:
            self._running = False
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()

    def __enter__(self) -> MetricsServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"MetricsServer({self.url}{'' if self._running else ', stopped'})"
