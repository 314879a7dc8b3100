"""What a monitor sees now as metrics for Prometheus, and an endpoint for them.

Units are the base ones that Prometheus asks for: bytes, ratios, watts, degrees Celsius, hertz.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import SHUT_RDWR, socket
from typing import TYPE_CHECKING, Any

from .._core import native
from .._core.checks import checked
from .._core.render import visible
from ..errors import AsrConfigError, InvalidArgumentError, UnsupportedError

if TYPE_CHECKING:
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


def registry_of(monitor: MemoryMonitor) -> Any:
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
        """One metric after the other; what is not known has no sample, and a metric without samples is left out."""
        for metric in (*_general(self._monitor), *_memory(self._monitor), *_activity(self._monitor)):
            if metric.samples:
                yield metric
        yield from _alerts(self._monitor)


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
    yield _gauge("monitor_running", "1 while samples are taken.", [({}, int(monitor.running))])


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
    if counts:
        values = ((dict(zip(labels, key, strict=True)), count) for key, count in counts.items())
        yield _gauge("alert_active", "Alerts that hold.", values)


def _named(monitor: MemoryMonitor, i: int) -> dict[str, str]:
    return {"gpu": f"{i}", "name": monitor.gpu_names[i] if i < len(monitor.gpu_names) else ""}


_HOST = "127.0.0.1"
_PATIENCE_S = 5.0  # with a client, from its connection to the end of its answer
_MAX_CONNECTIONS = 32  # connections at once; one more ends the oldest
_open: weakref.WeakSet[MetricsServer] = weakref.WeakSet()


class MetricsServer:
    """Answers ``GET /metrics`` on 127.0.0.1 from construction until ``stop`` or the end of a ``with`` block.

    ``port`` 0 takes a free one; see ``url``. Each connection has a thread and a few seconds, so that silent clients
    delay no other, and no thread keeps the process alive. The caller stops the monitor. A forked child closes the port.

    Needs ``prometheus_client``, whose own servers bound neither the number of clients nor their time. Raises
    ``UnsupportedError`` without it, and ``InvalidArgumentError`` for a port that is taken or invalid.
    """

    def __init__(self, monitor: MemoryMonitor, port: int = 0) -> None:
        if not 0 <= checked("port", port, int) <= 65535:
            raise InvalidArgumentError(f"invalid port = {port}", "pass 1 to 65535, or 0 for a free one")
        registry = registry_of(monitor)
        try:
            self._server = _Server((_HOST, port), _Handler)
        except OSError as error:
            raise InvalidArgumentError(
                f"port {port} of {_HOST} cannot be taken: {error.strerror or error}", "pass another one, or 0"
            ) from error
        self._server.registry = registry
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name="asrconfig-metrics", daemon=True
        )
        self._thread.start()
        _open.add(self)

    @property
    def url(self) -> str:
        """Where the metrics are."""
        return f"http://{_HOST}:{self.port}/metrics"

    def stop(self) -> None:
        """Answer no more, and free the port. Stopping twice is harmless."""
        if self in _open:
            _open.discard(self)
            self._server.shutdown()
            self._thread.join(2 * _PATIENCE_S)
            self._server.server_close()

    def __enter__(self) -> MetricsServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"MetricsServer({self.url}{'' if self in _open else ', stopped'})"


class _Server(ThreadingHTTPServer):
    registry: Any
    request_queue_size = 16
    daemon_threads, block_on_close = True, False

    def __init__(self, *arguments: Any) -> None:
        self.reading = threading.Lock()  # of the monitor
        self._connections: dict[socket, float] = {}  # and when they were made, the oldest first
        self._changing = threading.Lock()
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Begin to answer a client."""
        with self._changing:
            self._connections[request] = time.monotonic()
        self._end(lambda at, _: at < len(self._connections) - _MAX_CONNECTIONS)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Forget a client: answered, ended or gone."""
        with self._changing:
            self._connections.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """End the connections that last too long; called ten times a second."""
        late = time.monotonic() - _PATIENCE_S
        self._end(lambda _, since: since < late)

    def server_close(self) -> None:
        """Close the port and every connection."""
        super().server_close()
        self._end(lambda *_: True)

    def _end(self, chosen: Callable[[int, float], bool]) -> None:
        """End connections by their place and time: their threads read or write no more, and close them."""
        with self._changing:
            for at, (connection, since) in enumerate(self._connections.items()):
                if chosen(at, since):
                    with contextlib.suppress(OSError):
                        connection.shutdown(SHUT_RDWR)

    def handle_error(self, *_: Any) -> None:
        """A client that went away is no news for a training's log."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _PATIENCE_S
    server_version, sys_version = "asrconfig", ""

    def do_GET(self) -> None:
        if self.path.split("?", 1)[0] != "/metrics":
            self.send_error(404, "there is /metrics alone")
            return
        from prometheus_client.exposition import choose_encoder

        encode, content_type = choose_encoder(self.headers.get("Accept", ""))
        try:
            with self.server.reading:
                body = encode(self.server.registry)
        except AsrConfigError as error:
            self.send_error(503, "the monitor cannot be read", error.message)
            return
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", f"{len(body)}")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing: a scrape each few seconds is no news."""


def _let_go() -> None:
    """In a forked child: the port is the parent's."""
    for server in list(_open):
        with contextlib.suppress(OSError):
            server._server.socket.close()
    _open.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)
