"""Records of the library's answers, field by field; written by build/generate from their declarations in Go."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CPU:
    """The processors that this process may use."""

    model: str
    physical_cores: int
    """Of the host."""
    logical_cores: int
    """Of the host."""
    usable_cores: float
    """After affinity and the container's quota; may be a fraction."""
    limit_source: str
    """What made usable smaller than logical; ``""`` when nothing did."""


@dataclass(frozen=True)
class GPUProcess:
    """One process with memory on a GPU."""

    pid: int
    memory_bytes: int | None
    """None where the driver does not report it (MIG, containers, WSL)."""


@dataclass(frozen=True)
class GPU:
    """One device; a MIG slice is a device of its own. Sizes are bytes as the driver reports them."""

    index: int
    """CUDA ordinal among the visible devices."""
    uuid: str
    """``""`` when planned from the catalogue."""
    name: str
    """As the driver reports it, "Tesla T4"."""
    compute_capability: str
    memory_total_bytes: int
    """As the driver reports it."""
    memory_free_bytes: int | None
    """None when planned from the catalogue."""
    memory_used_bytes: int | None
    processes: tuple[GPUProcess, ...]
    """Compute processes with their memory; empty where the driver hides them."""
    mig: bool
    """A slice."""
    bf16: bool
    """Native bfloat16: compute capability 8.0 or newer."""
    bandwidth_gb_s: float | None
    """Published, 10^9 bytes per second."""
    tensor_tflops: float | None
    """Published, dense, fp16 or bf16 with fp32 accumulation."""
    fp32_tflops: float | None
    """Published."""
    power_watts: float | None
    """Published board power."""
    source: str
    """``"driver"`` or ``"catalogue"``."""


@dataclass(frozen=True)
class Memory:
    """Host RAM in bytes, within the container's limit."""

    total_bytes: int
    """The smaller of the host's RAM and the container's limit."""
    available_bytes: int
    """What can be allocated before reclaim fails, within the limit."""
    host_total_bytes: int
    """Of the machine."""
    limit_source: str
    """The file that set the limit, ``"/sys/fs/cgroup/…/memory.max"``; ``""`` when none."""


@dataclass(frozen=True)
class HardwareRecord:
    """One machine as training sees it: container limits and visible devices already applied."""

    gpus: tuple[GPU, ...]
    """The visible devices in CUDA order; empty without a GPU."""
    no_gpu_reason: str
    """Why there is none, in words; ``""`` with GPUs."""
    order_note: str
    """Why CUDA may have selected other GPUs; ``""`` where it has not."""
    driver_version: str | None
    """NVIDIA driver, ``"550.54.15"``."""
    cuda_version: str | None
    """Highest CUDA version that the driver supports, ``"12.4"``."""
    cpu: CPU
    memory: Memory
