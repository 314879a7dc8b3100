"""The memory bar: the parts of the tightest device's memory, and its limits."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..plan.plan_parts import MemoryPart
from .explained_plan import ExplainedPlan

if TYPE_CHECKING:
    from ..machine.hardware import GPU, HardwareProfile
    from ..plan.plan_record import PlanRecord


@dataclass(frozen=True)
class PlannedMemory:
    """Bytes of one device. ``parts`` add up to the peak; ``others_bytes`` were in use before the training.

    ``total_bytes`` and ``budget_bytes`` are None where a plan does not have them; ``high_bytes`` where no orders were
    simulated.
    """

    parts: tuple[MemoryPart, ...]
    peak_bytes: int
    high_bytes: int | None
    budget_bytes: int | None
    total_bytes: int | None
    others_bytes: int


def memory_of(e: ExplainedPlan) -> PlannedMemory:
    """Read it from the plan and, for what others hold and for a CPU's RAM, from the hardware."""
    c = e.config
    total, others = c.gpu_memory_bytes, 0
    if e.hardware is not None:
        if c.gpu_name:
            others = max((_others(gpu) for gpu in _planned_for(c, e.hardware)), default=0)
        else:
            total = e.hardware.memory.total_bytes
            others = total - e.hardware.memory.available_bytes
    parts = _parts(c)
    peak = max(c.predicted_bytes, sum(part.bytes for part in parts))
    return PlannedMemory(parts, peak, c.predicted_high_bytes, c.budget_bytes or None, total, others)


def _parts(c: PlanRecord) -> tuple[MemoryPart, ...]:
    """The plan's, completed to its peak; where a policy has none, the model and the rest."""
    if not c.memory_parts:
        if not 0 < c.model_memory_bytes < c.predicted_bytes:
            return (MemoryPart("training", c.predicted_bytes),) if c.predicted_bytes else ()
        clips = c.predicted_bytes - c.model_memory_bytes
        return MemoryPart("model and optimizer", c.model_memory_bytes), MemoryPart("activations", clips)
    parts = tuple(part for part in c.memory_parts if part.bytes > 0)
    other = c.predicted_bytes - sum(part.bytes for part in parts)
    return (*parts, MemoryPart("other", other)) if other > 0 else parts


def _planned_for(c: PlanRecord, h: HardwareProfile) -> list[GPU]:
    return [gpu for gpu in h.gpus if gpu.name == c.gpu_name and gpu.memory_total_bytes == c.gpu_memory_bytes]


def _others(gpu: GPU) -> int:
    """What is taken, without what this process holds; 0 of a GPU from the catalogue."""
    if gpu.memory_free_bytes is None:
        return 0
    own = sum(p.memory_bytes or 0 for p in gpu.processes if p.pid == os.getpid())
    return max(0, gpu.memory_total_bytes - gpu.memory_free_bytes - own)
