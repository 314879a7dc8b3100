"""What people see: text for terminals, HTML for notebooks. Sizes in GB are 10⁹ bytes, in GiB 2³⁰."""

from __future__ import annotations

import html
import textwrap
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .config import TrainingConfig
    from .dataset import DatasetProfile, Histogram
    from .hardware import HardwareProfile
    from .model import ModelProfile

GIB = 2**30


def gib(size: float | None) -> str:
    """``15.0 GiB``; a dash for an unknown size."""
    return "–" if size is None else f"{size / GIB:.1f} GiB"


def gb(size: float | None) -> str:
    """``16.11 GB``, amounts under 10 MB as MB, as the planner writes them; a dash for an unknown size."""
    if size is None:
        return "–"
    return f"{size / 1e6:.1f} MB" if size < 1e7 else f"{size / 1e9:.2f} GB"


def hardware_text(h: HardwareProfile) -> str:
    """GPUs (or why there are none), then processors and RAM."""
    lines = [
        f"GPU {g.index}: {g.name}, {gib(g.memory_total_bytes)}, compute capability {g.compute_capability}"
        + (f", {gib(g.memory_free_bytes)} free" if g.memory_free_bytes is not None else " (from the catalogue)")
        for g in h.gpus
    ] or [f"no GPU ({h.no_gpu_reason})"]
    if h.driver_version:
        lines.append(f"driver {h.driver_version}, CUDA up to {h.cuda_version or 'unknown'}")
    cpu, memory = h.cpu, h.memory
    cores = f"{cpu.usable_cores:g} of {cpu.logical_cores} cores" if cpu.limit_source else f"{cpu.logical_cores} cores"
    limit = f" (limited by {memory.limit_source})" if memory.limit_source else ""
    ram = f"RAM {gib(memory.available_bytes)} available of {gib(memory.total_bytes)}{limit}"
    return "\n".join([*lines, f"CPU {cores}, {ram}"])


def dataset_text(d: DatasetProfile) -> str:
    """Counts, durations, a histogram, and what is wrong with the bad files."""
    lines = _measured_lines(d) if d.measured_count else [f"no usable clip ({d.source})"]
    if d.bad_count:
        lines.append(f"{_plural(d.bad_count, 'bad file')} left out:")
        lines += [f"  {bad.path}: {bad.error}" for bad in d.bad_files[:5]]
        lines += [f"  … and {d.bad_count - 5} more in bad_files"] if d.bad_count > 5 else []
    return "\n".join(lines)


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")


def _measured_lines(d: DatasetProfile) -> list[str]:
    p = d.percentiles_s
    lines = [
        f"{_plural(d.sample_count, 'clip')}, {d.total_hours:.2f} h, {gb(d.size_bytes)} on disk, "
        f"{gb(d.decoded_bytes)} decoded ({d.source})",
        f"durations {d.min_s:.2f}–{d.max_s:.2f} s, mean {d.mean_s:.2f} s, median {p['p50']:.2f} s, "
        f"95 % under {p['p95']:.2f} s",
        f"{d.share_over_30s:.1%} over 30 s; sample rates {_mix(d.sample_rates, ' Hz')}; codecs {_mix(d.codecs)}",
    ]
    if d.sampled:
        lines.append(f"measured on a random sample of {d.measured_count}")
    if d.shortened_count:
        lines.append(f"{d.shortened_count} files hold less audio than their headers claim; what they hold was counted")
    return lines + histogram_lines(d.histogram)


def _mix(counts: dict[str, int], unit: str = "") -> str:
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    return (
        ", ".join(f"{name}{unit}" + (f" ×{count}" if len(ordered) > 1 else "") for name, count in ordered) or "unknown"
    )


def histogram_lines(h: Histogram, width: int = 40) -> list[str]:
    """One bar a bin, scaled to the tallest."""
    tallest = max(h.counts, default=0)
    return [
        f"  {low:7.2f}–{high:7.2f} s |{'█' * max(round(width * n / tallest), int(n > 0)):<{width}}| {n}"
        for low, high, n in zip(h.edges_s, h.edges_s[1:], h.counts, strict=False)
    ]


def model_text(m: ModelProfile) -> str:
    """Parameters and the bytes that training keeps for them."""
    label = f"{m.name} ({m.class_name})" if m.name and m.class_name else m.name or m.class_name or m.architecture
    trainable = m.total_parameters if m.trainable_parameters is None else m.trainable_parameters
    lines = [f"{label or 'model'}: {m.total_parameters / 1e6:.1f} M parameters, {trainable / 1e6:.1f} M trainable"]
    if m.parameter_bytes is not None:
        states = ", ".join(f"{name} {gb(size)}" for name, size in sorted(m.optimizer_bytes.items()) if size)
        lines.append(f"parameters {gb(m.parameter_bytes)}, gradients {gb(m.gradient_bytes)}, optimizer state: {states}")
    return "\n".join(lines)


def config_text(c: TrainingConfig) -> str:
    """The "Optimized Settings" block, and the warnings."""
    devices = f" × {c.device_count} GPUs" if c.device_count > 1 else ""
    rows = [
        ("Batch size", f"{c.per_device_train_batch_size}"),
        ("Gradient accumulation", f"{c.gradient_accumulation_steps}"),
        (
            "Effective batch",
            f"{c.effective_batch_size} ({c.per_device_train_batch_size} × {c.gradient_accumulation_steps}{devices})",
        ),
        ("Precision", c.precision + (" + tf32" if c.tf32 else "")),
        ("Gradient checkpointing", "on" if c.gradient_checkpointing else "off"),
        ("Learning rate", f"{c.learning_rate:.2g} ({c.lr_scaling} scaling)"),
        ("DataLoader workers", f"{c.dataloader_num_workers}"),
    ]
    lines = ["Optimized Settings", *(f"  {name:<23} {value}" for name, value in rows)]
    return "\n".join(lines + [f"  ! {line}" for text in c.warnings for line in textwrap.wrap(text, 100)])


def config_html(c: TrainingConfig) -> str:
    """The plan as a table of decisions."""
    rows = "".join(
        f"<tr><td><code>{html.escape(d.setting)}</code></td><td><b>{html.escape(d.value)}</b></td>"
        f'<td style="text-align:left">{html.escape(d.reason)}</td></tr>'
        for d in c.decisions
    )
    table = f"<table><tr><th>setting</th><th>value</th><th>reason</th></tr>{rows}</table>"
    return (
        as_html("Plan", config_text(c)) + f"<details><summary>{len(c.decisions)} decisions</summary>{table}</details>"
    )


def explain_config(c: TrainingConfig) -> str:
    """Every decision with its reason, wrapped for a terminal; overridden settings are marked."""
    lines = [f"Plan by policy {c.policy!r}, preset {c.preset!r}, for {c.gpu_name or 'the CPU'}:"]
    for d in c.decisions:
        now = _shown(d.setting, getattr(c, d.setting))
        lines.append(f"  {d.setting} = {now}" + ("" if now == d.value else f" (overridden; planned: {d.value})"))
        lines += textwrap.wrap(d.reason, 110, initial_indent="      ", subsequent_indent="      ")
    return "\n".join(lines + [f"  ! {text}" for text in c.warnings])


def _shown(setting: str, value: Any) -> str:
    """A value as the planner writes it in its decisions."""
    if value is None:
        return "none"
    if setting.endswith("_bytes"):
        return gb(value)
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def as_html(title: str, text: str) -> str:
    """Text in a titled box."""
    style = "margin:0.3em 0;font-family:monospace"
    return f'<div><b>{html.escape(title)}</b><pre style="{style}">{html.escape(text)}</pre></div>'


def say(verbose: bool, stage: str, what: Any) -> None:
    """Print one stage: its name, then what was found, aligned."""
    if verbose:
        first, *rest = repr(what).splitlines()
        print("\n".join([f"{stage + ':':<10} {first}", *(f"{'':<10} {line}" for line in rest)]), flush=True)
