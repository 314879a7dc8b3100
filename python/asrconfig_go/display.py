"""What people see: text for terminals, HTML for notebooks. Sizes in GB are 10⁹ bytes, in GiB 2³⁰."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

from ._output import show
from .markup import escaped

if TYPE_CHECKING:
    from .hardware import HardwareProfile
    from .model import ModelProfile
    from .plan_record import PlanRecord

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


def plural(count: int, noun: str, many: str = "") -> str:
    """``1 clip``, ``2 clips``; ``many`` where an s is not enough."""
    return f"{count} {noun if count == 1 else many or noun + 's'}"


def model_text(m: ModelProfile) -> str:
    """Parameters and the bytes that training keeps for them."""
    label = f"{m.name} ({m.class_name})" if m.name and m.class_name else m.name or m.class_name or m.architecture
    trainable = m.total_parameters if m.trainable_parameters is None else m.trainable_parameters
    lines = [f"{label or 'model'}: {m.total_parameters / 1e6:.1f} M parameters, {trainable / 1e6:.1f} M trainable"]
    if m.parameter_bytes is not None:
        states = ", ".join(f"{name} {gb(size)}" for name, size in sorted(m.optimizer_bytes.items()) if size)
        lines.append(f"parameters {gb(m.parameter_bytes)}, gradients {gb(m.gradient_bytes)}, optimizer state: {states}")
    return "\n".join(lines)


def _steps(c: PlanRecord) -> list[tuple[str, str]]:
    """How the guard makes a plan's steps, where the Trainer alone would not."""
    if c.micro_batching != "memory":
        return []
    cut = f"cut by memory: {c.micro_batch_size} of the longest at once"
    return [("Steps", f"{c.length_handling} clips, {cut} (by manager.attach)")]


def config_text(c: PlanRecord) -> str:
    """The "Optimized Settings" block, and the warnings."""
    devices = f" × {c.device_count} GPUs" if c.device_count > 1 else ""
    rows = [
        ("Batch size", f"{c.per_device_train_batch_size}"),
        ("Gradient accumulation", f"{c.gradient_accumulation_steps}"),
        (
            "Effective batch",
            f"{c.effective_batch_size} ({c.per_device_train_batch_size} × {c.gradient_accumulation_steps}{devices})",
        ),
        *_steps(c),
        ("Precision", c.precision + (" + tf32" if c.tf32 else "")),
        ("Gradient checkpointing", "on" if c.gradient_checkpointing else "off"),
        ("Learning rate", f"{c.learning_rate:.2g} ({c.lr_scaling} scaling)"),
        ("DataLoader workers", f"{c.dataloader_num_workers}"),
    ]
    lines = ["Optimized Settings", *(f"  {name:<23} {value}" for name, value in rows)]
    for text in c.warnings:
        lines += textwrap.wrap(text, 100, initial_indent="  ! ", subsequent_indent="    ")
    return "\n".join(lines)


def as_html(title: str, text: str) -> str:
    """Text in a titled box, line by line as it is; long lines scroll."""
    style = "margin:0.3em 0;font-family:monospace;white-space:pre;overflow-x:auto"
    lines = "\n".join(map(escaped, text.splitlines()))
    return f'<div><b>{escaped(title)}</b><pre style="{style}">{lines}</pre></div>'


def say(verbose: bool, stage: str, what: Any) -> None:
    """Print one stage: its name, then what was found, aligned."""
    if verbose:
        first, *rest = repr(what).splitlines()
        show("\n".join([f"{stage + ':':<10} {first}", *(f"{'':<10} {line}" for line in rest)]))
