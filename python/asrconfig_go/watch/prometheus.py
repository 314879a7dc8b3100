"""What a monitor sees now as metrics for Prometheus, and an endpoint for them.

Units are the base ones that Prometheus asks for: bytes, ratios, watts, degrees Celsius, hertz.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING

from .._core import native
from .._core.checks import checked
from .._core.render import visible
from ..errors import AsrConfigError, InvalidArgumentError, UnsupportedError

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

    from .memory_monitor import MemoryMonitor


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


def registry_of(monitor: MemoryMonitor) -> CollectorRegistry:
    """A ``prometheus_client.CollectorRegistry`` that reads ``monitor`` at each scrape.

    Raises ``UnsupportedError`` where prometheus_client is not installed.
    """
    try:
        from prometheus_client import CollectorRegistry
    except ImportError as error:
        raise UnsupportedError(
            "the Prometheus endpoint needs prometheus_client", "pip install prometheus-client"
        ) from error
    registry = CollectorRegistry()
    registry.register(MonitorCollector(monitor))
    return registry


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


def _gauge(name: str, text: str, values: Iterable[tuple[dict[str, str], float | None]]) -> Metric:
    from prometheus_client.core import Metric

    metric = Metric(_PREFIX + name, text, "gauge")
    for labels, value in values:
        if value is not None:
            metric.add_sample(metric.name, {label: visible(text) for label, text in labels.items()}, float(value))
    return metric


def _general(monitor: MemoryMonitor) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily

    snapshot = monitor.read()
    for name, text, value in (
        ("samples", "Samples taken.", snapshot.samples),
        ("sample_errors", "Readings that failed.", snapshot.errors),
        ("alerts_changed", "Alerts raised and cleared.", monitor.alert_changes),
    ):
        yield CounterMetricFamily(_PREFIX + name, text, value=value)
    yield _running(monitor.running)


def _running(running: bool) -> Metric:
    return _gauge("monitor_running", "1 while samples are taken.", [({}, int(running))])


def _memory(monitor: MemoryMonitor) -> Iterator[Metric]:
    snapshot = monitor.read()
    for attribute, name, text in _GPU_MEMORY:
        yield _gauge(name, text, ((_named(monitor, i), getattr(gpu, attribute)) for i, gpu in enumerate(snapshot.gpus)))
    for attribute, text in (("total", "RAM, container's limit applied."), ("used", "RAM in use.")):
        yield _gauge(f"host_memory_{attribute}_bytes", text, [({}, getattr(snapshot, f"host_{attribute}"))])


def _activity(monitor: MemoryMonitor) -> Iterator[Metric]:
    now = monitor.activity()
    for attribute, name, text in _HOST_ACTIVITY:
        yield _gauge(name, text, [({}, getattr(now, attribute))])
    for attribute, name, text, unit in _GPU_ACTIVITY:
        readings = [(_named(monitor, i), getattr(gpu, attribute)) for i, gpu in enumerate(now.gpus)]
        yield _gauge(name, text, ((labels, None if value is None else unit * value) for labels, value in readings))
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


_HOST = "127.0.0.1"


class MetricsServer:
    """Answers ``GET /metrics`` on 127.0.0.1 from construction until ``stop`` or the end of a ``with`` block.

    ``port`` 0 takes a free one; see ``url``. The server is ``prometheus_client``'s, with a thread for each connection
    that does not keep the process alive. The caller stops the monitor.

    Raises ``UnsupportedError`` without ``prometheus_client``, and ``InvalidArgumentError`` for a port that is taken or
    invalid.
    """

    def __init__(self, monitor: MemoryMonitor, port: int = 0) -> None:
        if not 0 <= checked("port", port, int) <= 65535:
            raise InvalidArgumentError(f"invalid port = {port}", "pass 1 to 65535, or 0 for a free one")
        registry = registry_of(monitor)
        from prometheus_client import start_http_server

        try:
            self._server, self._thread = start_http_server(port, _HOST, registry)
        except OSError as error:
            raise InvalidArgumentError(
                f"port {port} of {_HOST} cannot be taken: {error.strerror or error}", "pass another one, or 0"
            ) from error
        self.port: int = self._server.server_port
        self._running = True

    @property
    def url(self) -> str:
        """Where the metrics are."""
        return f"http://{_HOST}:{self.port}/metrics"

    def stop(self) -> None:
        """Answer no more, and free the port. Stopping twice is harmless."""
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
