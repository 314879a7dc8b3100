"""A reading as lines for a terminal, at most as wide as it."""

from __future__ import annotations

import time
from dataclasses import dataclass

from ..monitor.reading import Reading
from ..view.markup import visible
from ..view.quantities import amount, percent, rate, size
from ..view.terminal import WIDTH
from .run_figures import THROTTLES

_BLOCK, _SHADE = "█", "░"
_UNUSUAL = 2 | 4  # heat and the brake; cards run at their power limit whenever they are busy
_FULL, _TIGHT = 0.95, 0.90  # shares of memory that are shown as grave, and as worth a look
_COLOURS = {"bad": "\x1b[31m", "warn": "\x1b[33m", "bold": "\x1b[1m"}


@dataclass(frozen=True)
class Line:
    """``tone`` is "", "bold", "warn" or "bad"."""

    text: str
    tone: str = ""

    def shown(self, width: int, coloured: bool) -> str:
        """Cut to ``width``, with what a terminal would take for a command written out."""
        text = visible(self.text)
        text = text if len(text) <= width else text[: width - 1] + "…"
        return f"{_COLOURS[self.tone]}{text}\x1b[0m" if coloured and self.tone else text


def screen(now: Reading, width: int, height: int) -> list[Line]:
    """One screen: each GPU in a few lines, or in one where there is no room for more; then the host and alerts."""
    width = min(width, WIDTH)
    tail = [*_host(now, width), *_alerts(now)]
    whole = [line for i in range(len(now.memory.gpus)) for line in _gpu(now, i, width)]
    room = height - len(tail) - 2
    if len(whole) > room:
        whole = [_short_gpu(now, i, width) for i in range(len(now.memory.gpus))]
    lines = [_head(now), *(whole or [Line("no GPU")]), *tail]
    return lines if len(lines) < height else [*lines[: max(1, height - 2)], Line("…")]


def summary(now: Reading) -> str:
    """One line, for what is no terminal."""
    parts = [time.strftime("%H:%M:%S", time.localtime(now.unix_s))]
    for i, gpu in enumerate(now.memory.gpus):
        row = now.activity.gpus[i] if i < len(now.activity.gpus) else None
        words = f"GPU {i} {size(gpu.used)} of {size(gpu.total)}"
        if row is not None:
            words += f" {percent(row.utilization)} {amount(row.power_w, 'W')} {amount(row.temperature_c, '°C')}"
        parts.append(words)
    parts.append(f"RAM {size(now.memory.host_used)} of {size(now.memory.host_total)}")
    parts.append(f"CPU {percent(now.activity.cpu_share)}")
    parts += [f"{'!!' if alert.severity == 'critical' else '!'} {alert.text}" for alert in now.alerts]
    return visible(" | ".join(parts))


def _head(now: Reading) -> Line:
    watched = f" · process {now.pid}" if now.pid is not None else ""
    errors = f" · {now.memory.errors} failed readings" if now.memory.errors else ""
    return Line(f"asrconfig monitor · {time.strftime('%H:%M:%S', time.localtime(now.unix_s))}{watched}{errors}", "bold")


def _bar(part: float | None, width: int) -> str:
    """Filled to ``part``; dots where that is not known."""
    if part is None:
        return "·" * width
    filled = round(width * min(max(part, 0.0), 1.0))
    return _BLOCK * filled + _SHADE * (width - filled)


def _long(width: int) -> int:
    return max(8, min(40, width - 62))


def _tone(part: float | None) -> str:
    return "bad" if (part or 0) >= _FULL else "warn" if (part or 0) >= _TIGHT else ""


def _gpu(now: Reading, i: int, width: int) -> list[Line]:
    gpu, fixed = now.memory.gpus[i], now.gpus[i]
    memory = f"{size(gpu.used)} of {size(gpu.total)}, {percent(gpu.fraction)}, headroom {size(gpu.headroom)}"
    lines = [Line(f"GPU {i}  {fixed.name}", "bold")]
    lines.append(Line(f"  memory  {_bar(gpu.fraction, _long(width))} {memory}", _tone(gpu.fraction)))
    if i < len(now.activity.gpus):
        row = now.activity.gpus[i]
        lines.append(Line(f"  busy    {_bar(row.utilization, _long(width))} {percent(row.utilization)}"))
        held = _held(row.throttle)
        words = [
            f"{amount(row.power_w, 'W')}" + (f" of {fixed.power_limit_w:.0f}" if fixed.power_limit_w else ""),
            amount(row.temperature_c, "°C"),
            f"{amount(row.clock_mhz, 'MHz')}" + (f" of {fixed.max_clock_mhz:.0f}" if fixed.max_clock_mhz else ""),
            *([f"held back by {held}"] if held else []),
        ]
        lines.append(Line(f"  {' · '.join(words)}", "warn" if int(row.throttle or 0) & _UNUSUAL else ""))
    listed = now.processes[i] if i < len(now.processes) else ()
    if listed:
        told = ", ".join(f"{p.pid} {p.name} {size(p.memory_bytes)}" for p in listed)
        lines.append(Line(f"  processes  {told}"))
    return lines


def _short_gpu(now: Reading, i: int, width: int) -> Line:
    gpu = now.memory.gpus[i]
    row = now.activity.gpus[i] if i < len(now.activity.gpus) else None
    told = f"{size(gpu.used)} of {size(gpu.total)}"
    if row is not None:
        told += f"  {percent(row.utilization):>5}  {amount(row.power_w, 'W'):>6}  {amount(row.temperature_c, '°C'):>5}"
        held = _held(row.throttle)
        told += f"  {held}" if held else ""
    return Line(f"GPU {i:<2} {_bar(gpu.fraction, max(6, min(24, width - 60)))} {told}", _tone(gpu.fraction))


def _held(throttle: float | None) -> str:
    bits = int(throttle or 0)
    return ", ".join(word for bit, word in THROTTLES.items() if bits & bit)


def _host(now: Reading, width: int) -> list[Line]:
    a, memory, host = now.activity, now.memory, now.host
    part, limit = memory.host_fraction, ", container's limit" if host.contained else ""
    lines = [Line("Host", "bold")]
    ram = f"{size(memory.host_used)} of {size(memory.host_total)}{limit}, {size(a.host_available_bytes)} available"
    lines.append(Line(f"  RAM     {_bar(part, _long(width))} {ram}", _tone(part)))
    cores = f"{percent(a.cpu_share)} of {host.cpus or '–'} cores, the busiest {percent(a.busiest_core)}"
    lines.append(Line(f"  CPU     {_bar(a.cpu_share, _long(width))} {cores}"))
    shm = f"{size(a.shm_used_bytes)} of {size(host.shm_total_bytes or None)}"
    lines.append(Line(f"  swap {size(a.swap_used_bytes)} · /dev/shm {shm}"))
    disk = f"disk {rate(a.disk_read_bytes_s)} read, {rate(a.disk_written_bytes_s)} written"
    lines.append(Line(f"  {disk} · network {rate(a.net_received_bytes_s)} in, {rate(a.net_sent_bytes_s)} out"))
    if now.pid is not None:
        own = f"RAM {size(a.tree_rss_bytes)}, of that its children {size(a.workers_rss_bytes)}"
        lines.append(Line(f"  process {now.pid}: {own}; GPU memory {size(now.tree_gpu_bytes)}"))
    return lines


def _alerts(now: Reading) -> list[Line]:
    tones = {"critical": "bad"}
    return [Line(f"! {alert.text} → {alert.advice}", tones.get(alert.severity, "warn")) for alert in now.alerts]
