"""Which charts a run has, and what is in each: the same for the page's SVG and for matplotlib."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ..monitor.run_log import StepSeries
from ..view.units import GIB
from .timeline import GPUView, Line, Timeline

Choose = Callable[[list[float]], float]

BLUE, ORANGE, GREEN, PURPLE, GREY = "#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#8c8c8c"


def average(values: list[float]) -> float:
    """Of what is in a column."""
    return sum(values) / len(values)


@dataclass(frozen=True)
class Series:
    """A line in the chart's unit once divided by the panel's ``scale``; ``choose`` thins it."""

    name: str
    line: Line
    colour: str
    choose: Choose = max
    area: bool = False


@dataclass(frozen=True)
class Panel:
    """One chart. ``where`` is the label of its GPU, "" for the host; ``limit`` is a value with its name."""

    title: str
    where: str
    unit: str
    scale: float
    series: tuple[Series, ...]
    limit: tuple[float, str] | None = None
    whole: float | None = None  # what all of it would be, where that is known without a limit

    @property
    def top(self) -> float:
        """The highest value that is to be seen, in the unit."""
        values = [v for series in self.series for v in series.line.values if v is not None]
        values += [self.limit[0]] if self.limit else []
        return 1.06 * (self.whole or max(values, default=0.0) / self.scale) or 1.0

    @property
    def empty(self) -> bool:
        """Whether nothing is known of it."""
        return not any(v is not None for series in self.series for v in series.line.values)


def memory_panel(line: Timeline, view: GPUView) -> Panel:
    """What the driver tells, with PyTorch's cache and what is in it."""
    series = [Series("in use (driver)", line.used(view), BLUE, area=True)]
    for name, column, colour in (
        ("reserved by PyTorch", "peak_reserved_bytes", ORANGE),
        ("allocated by PyTorch", "peak_allocated_bytes", GREEN),
    ):
        series.append(Series(name, line.torch(view, column), colour))
    total = view.gpu.total_bytes
    return Panel("Memory", view.label, "GiB", GIB, _known(series), (total, "total") if total else None)


def busy_panel(line: Timeline, view: GPUView) -> Panel:
    """Utilisation, and what steps waited for."""
    series = [Series("GPU busy", line.gpu_row(view, "utilization"), BLUE, average, area=True)]
    series.append(Series("steps waiting for the loader", _waiting(line), ORANGE, average))
    return Panel("Utilisation", view.label, "%", 0.01, _known(series), whole=100.0)


def power_panel(line: Timeline, view: GPUView) -> Panel:
    """Watts against their limit."""
    limit = view.gpu.power_limit_w
    series = [Series("power", line.gpu_row(view, "power_w"), PURPLE, average, area=True)]
    return Panel("Power", view.label, "W", 1.0, _known(series), (limit, "power limit") if limit else None)


def heat_panel(line: Timeline, view: GPUView) -> Panel:
    """Degrees Celsius."""
    series = [Series("temperature", line.gpu_row(view, "temperature_c"), ORANGE)]
    return Panel("Temperature", view.label, "°C", 1.0, _known(series), whole=100.0)


def steps_panel(line: Timeline) -> Panel:
    """Seconds of an optimizer step, with its wait for the loader."""
    series = [
        Series("a step", line.step_row(lambda s, i: _each(s.spent_s[i], s.covers[i])), BLUE, average, area=True),
        Series("of that, the loader", line.step_row(lambda s, i: _each(s.waited_s[i], s.covers[i])), ORANGE, average),
    ]
    return Panel("Seconds a step", "", "s", 1.0, _known(series))


def ram_panels(line: Timeline) -> Iterator[Panel]:
    """RAM of each machine."""
    for node in line.nodes:
        total = node[0].run_log.host.total_bytes
        series = [
            Series("in use", line.host_used(node), BLUE, area=True),
            Series("this training", line.host_row(node, "tree_rss_bytes"), ORANGE),
            Series("its loader workers", line.host_row(node, "workers_rss_bytes"), GREEN),
            Series("/dev/shm", line.host_row(node, "shm_used_bytes"), PURPLE),
            Series("swap", line.host_row(node, "swap_used_bytes"), GREY),
        ]
        name = "container's limit" if node[0].run_log.host.contained else "total"
        yield Panel(
            f"{_named(line, node[0].name)}Host RAM", "", "GiB", GIB, _seen(series), (total, name) if total else None
        )


def cpu_panels(line: Timeline) -> Iterator[Panel]:
    """Processors of each machine."""
    for node in line.nodes:
        series = [
            Series("all cores", line.host_row(node, "cpu_share"), BLUE, average, area=True),
            Series("the busiest core", line.host_row(node, "busiest_core"), ORANGE, average),
        ]
        yield Panel(f"{_named(line, node[0].name)}Processors", "", "%", 0.01, _known(series), whole=100.0)


def traffic_panels(line: Timeline) -> Iterator[Panel]:
    """Disk and network of each machine."""
    for node in line.nodes:
        series = [
            Series("disk read", line.host_row(node, "disk_read_bytes_s"), BLUE, average, area=True),
            Series("disk written", line.host_row(node, "disk_written_bytes_s"), ORANGE, average),
            Series("network received", line.host_row(node, "net_received_bytes_s"), GREEN, average),
            Series("network sent", line.host_row(node, "net_sent_bytes_s"), PURPLE, average),
        ]
        yield Panel(f"{_named(line, node[0].name)}Disk and network", "", "MB/s", 1e6, _seen(series))


def fullest(line: Timeline, lowest: Sequence[float | None], count: int) -> tuple[GPUView, ...]:
    """The ``count`` GPUs with the least headroom, in their own order; ``lowest`` is that of each."""
    order = sorted(range(len(line.gpus)), key=lambda i: (lowest[i] is None, lowest[i] or 0.0, i))
    return tuple(line.gpus[i] for i in sorted(order[:count]))


def _known(series: Sequence[Series]) -> tuple[Series, ...]:
    return tuple(s for s in series if any(v is not None for v in s.line.values))


def _seen(series: Sequence[Series]) -> tuple[Series, ...]:
    """Without those that stayed at zero."""
    return tuple(s for s in series if any(s.line.values))


def _named(line: Timeline, name: str) -> str:
    return f"{name}: " if name and len(line.nodes) > 1 else ""


def _each(sum_s: float | None, covers: int) -> float | None:
    return None if sum_s is None else sum_s / max(1, covers)


def _waiting(line: Timeline) -> Line:
    def part(steps: StepSeries, i: int) -> float | None:
        spent, waited = steps.spent_s[i], steps.waited_s[i]
        return waited / spent if spent and waited is not None else None

    return line.step_row(part)
