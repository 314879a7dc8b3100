"""What a monitor sees now, in Prometheus' text format 0.0.4.

The format: https://prometheus.io/docs/instrumenting/exposition_formats. Units are the base ones that Prometheus asks
for: bytes, ratios, watts, degrees Celsius, hertz.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..view.markup import visible
from .run_figures import THROTTLES

if TYPE_CHECKING:
    from ..monitor.memory_monitor import MemoryMonitor

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
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

Labels = dict[str, str]


@dataclass
class Family:
    """One metric with its samples; what is not known has none."""

    name: str
    help: str
    kind: str = "gauge"
    samples: list[tuple[Labels, float]] = field(default_factory=list)

    def put(self, value: float | None, **labels: str) -> None:
        """Add a sample that is known."""
        if value is not None:
            self.samples.append((labels, value))

    def lines(self) -> Iterator[str]:
        """HELP, TYPE and the samples."""
        if self.samples:
            yield f"# HELP {_PREFIX}{self.name} {self.help}"
            yield f"# TYPE {_PREFIX}{self.name} {self.kind}"
        for labels, value in self.samples:
            inner = ",".join(f'{name}="{_label(text)}"' for name, text in labels.items())
            yield f"{_PREFIX}{self.name}{f'{{{inner}}}' if inner else ''} {_number(value)}"


def exposition(monitor: MemoryMonitor) -> str:
    """The text of one scrape."""
    families = [*_general(monitor), *_memory(monitor), *_activity(monitor), _alerts(monitor)]
    return "".join(f"{line}\n" for family in families for line in family.lines())


def _general(monitor: MemoryMonitor) -> Iterator[Family]:
    seen = monitor.read()
    for name, text, value in (
        ("samples_total", "Samples taken.", seen.samples),
        ("sample_errors_total", "Readings that failed.", seen.errors),
        ("alerts_changed_total", "Alerts raised and cleared.", monitor.alert_changes),
    ):
        yield Family(name, text, "counter", [({}, value)])
    yield Family("monitor_running", "1 while samples are taken.", samples=[({}, int(monitor.running))])


def _memory(monitor: MemoryMonitor) -> Iterator[Family]:
    seen = monitor.read()
    for attribute, name, text in _GPU_MEMORY:
        family = Family(name, text)
        for i, gpu in enumerate(seen.gpus):
            family.put(getattr(gpu, attribute), **_named(monitor, i))
        yield family
    for attribute, text in (("total", "RAM, container's limit applied."), ("used", "RAM in use.")):
        family = Family(f"host_memory_{attribute}_bytes", text)
        family.put(getattr(seen, f"host_{attribute}"))
        yield family


def _activity(monitor: MemoryMonitor) -> Iterator[Family]:
    now = monitor.activity()
    for attribute, name, text in _HOST_ACTIVITY:
        family = Family(name, text)
        family.put(getattr(now, attribute))
        yield family
    for attribute, name, text, unit in _GPU_ACTIVITY:
        family = Family(name, text)
        for i, gpu in enumerate(now.gpus):
            value = getattr(gpu, attribute)
            family.put(None if value is None else unit * value, **_named(monitor, i))
        yield family
    throttled = Family("gpu_throttled", "1 while the reason holds the clock back.")
    for i, gpu in enumerate(now.gpus):
        for bit, reason in THROTTLES.items():
            known = None if gpu.throttle is None else int(bool(int(gpu.throttle) & bit))
            throttled.put(known, **_named(monitor, i), reason=reason)
    yield throttled


def _alerts(monitor: MemoryMonitor) -> Family:
    """Those that hold: how many of each kind."""
    counts: dict[tuple[str, str, str], int] = {}
    for alert in monitor.alerts():
        if alert.cleared_s is None:
            key = (alert.kind, "" if alert.gpu < 0 else f"{alert.gpu}", alert.severity)
            counts[key] = counts.get(key, 0) + 1
    family = Family("alert_active", "Alerts that hold.")
    for (kind, gpu, severity), count in counts.items():
        family.put(count, kind=kind, gpu=gpu, severity=severity)
    return family


def _named(monitor: MemoryMonitor, i: int) -> Labels:
    return {"gpu": f"{i}", "name": monitor.gpu_names[i] if i < len(monitor.gpu_names) else ""}


def _label(text: str) -> str:
    return visible(text).replace("\\", "\\\\").replace('"', '\\"')


def _number(value: float) -> str:
    return f"{int(value)}" if float(value).is_integer() else f"{value!r}"
