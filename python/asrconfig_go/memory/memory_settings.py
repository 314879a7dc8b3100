"""Inputs of a memory estimate: training settings, shape of a batch, GPU."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Any

from .._base import native
from .._base.checks import check_seconds, checked
from .._base.choices import Checkpointing, Precision
from .._base.defaults import ACCUMULATION, ALLOCATOR, OPTIMIZER, PRECISION
from .._base.errors import InvalidArgumentError
from .._base.input_units import WORDS, RowKind
from .._base.records import to_json
from ..machine.hardware import GPU, HardwareProfile
from .calibration_record import torch_version

MAX_BATCH = 65_536
MAX_LABELS = 1_000_000
MAX_ACCUMULATION = 65_536
MAX_LAYERS = 65_536
MAX_RANK = 4096
_DEFAULT_CAPABILITY = "8.0"  # of an unnamed GPU: Ampere, with every attention kernel


def positive(name: str, value: Any, limit: int) -> int:
    """Return a whole number from 1 to ``limit``, else raise ``InvalidArgumentError``."""
    number: int = checked(name, value, int)
    if not 1 <= number <= limit:
        raise InvalidArgumentError(
            f"{name} = {number} is not between 1 and {limit}", "pass a whole number of at least 1"
        )
    return number


@dataclass(frozen=True)
class MemorySettings:
    """The settings of a training that decide on its memory.

    ``precision`` is ``"fp32"``, ``"fp16"`` or ``"bf16"`` (mixed, with fp32 weights); ``gradient_checkpointing`` False,
    True, ``"reentrant"`` or ``"non_reentrant"``, of each ``every_n_layers``-th layer as transformers counts them (above
    1 from 5.23 on), what it saves in pinned host memory with ``offload_checkpoints`` (from 5.23 on); ``optimizer`` the
    Trainer's name; ``accumulation`` micro-batches per optimizer step, 1 to 65536; ``allocator`` the text of
    PYTORCH_CUDA_ALLOC_CONF, "" for PyTorch's own defaults; that of a plan when left out; ``lora_rank`` above 0 trains
    adapters of that rank (see ``add_lora``).
    """

    precision: Precision = PRECISION
    gradient_checkpointing: bool | Checkpointing = False
    optimizer: str = OPTIMIZER
    accumulation: int = ACCUMULATION
    freeze_feature_encoder: bool = False
    allocator: str = ALLOCATOR
    every_n_layers: int = 1
    offload_checkpoints: bool = False
    lora_rank: int = 0

    def __post_init__(self) -> None:
        checked("precision", self.precision, Precision)
        checked("gradient_checkpointing", self.gradient_checkpointing, bool | Checkpointing)
        positive("accumulation", self.accumulation, MAX_ACCUMULATION)
        if positive("every_n_layers", self.every_n_layers, MAX_LAYERS) > 1 and self.gradient_checkpointing is False:
            raise InvalidArgumentError(
                f"every_n_layers = {self.every_n_layers} without checkpointing", "pass gradient_checkpointing=True, too"
            )
        if checked("offload_checkpoints", self.offload_checkpoints, bool) and self.gradient_checkpointing is False:
            raise InvalidArgumentError(
                "offload_checkpoints without checkpointing", "pass gradient_checkpointing=True, too"
            )
        checked("freeze_feature_encoder", self.freeze_feature_encoder, bool)
        if self.lora_rank != 0:
            positive("lora_rank", self.lora_rank, MAX_RANK)
        checked("allocator", self.allocator, str)
        checked("optimizer", self.optimizer, str)
        if not self.optimizer:
            raise InvalidArgumentError(
                "optimizer is empty", 'name one as the Trainer does, such as "adamw_torch_fused"'
            )

    @property
    def checkpointing(self) -> str:
        """``"off"``, ``"on"``, ``"reentrant"`` or ``"non_reentrant"``."""
        kind = self.gradient_checkpointing
        return kind if isinstance(kind, str) else "on" if kind else "off"

    def step_words(self) -> str:
        """The settings that decide how a step is computed, for people."""
        parts = [self.precision, self.optimizer, f"gradient checkpointing {self.checkpointing}"]
        parts += [f"every {self.every_n_layers} layers"] if self.every_n_layers > 1 else []
        parts += ["offloaded"] if self.offload_checkpoints else []
        parts += [f"LoRA of rank {self.lora_rank}"] if self.lora_rank else []
        return ", ".join(parts)

    def words(self) -> str:
        """One line for people."""
        parts = [self.step_words()]
        parts += [f"accumulation {self.accumulation}"] if self.accumulation > 1 else []
        parts += ["feature encoder frozen"] if self.freeze_feature_encoder else []
        parts += [self.allocator or "PyTorch's allocator settings"]
        return ", ".join(parts)


@dataclass(frozen=True)
class Shape:
    """One micro-batch: samples, seconds of the longest sample, label tokens of the longest text (None: the usual)."""

    batch: int
    seconds: float
    labels: int | None = None

    def __post_init__(self) -> None:
        positive("batch", self.batch, MAX_BATCH)
        check_seconds("seconds", self.seconds)
        if self.labels is not None:
            check_labels("labels", self.labels)

    def words(self, row_kind: RowKind = "clips") -> str:
        """``8 × 15 s`` or ``8 × 128 tokens``, with the labels where they were given."""
        labels = "" if self.labels is None else f", {self.labels} labels"
        return f"{self.batch} × {WORDS[row_kind].length(self.seconds)}{labels}"


def check_labels(name: str, labels: Any) -> int:
    """Return a label length from 0 to a million tokens, else raise ``InvalidArgumentError``."""
    value: int = checked(name, labels, int)
    if not 0 <= value <= MAX_LABELS:
        raise InvalidArgumentError(
            f"{name} = {value} is not between 0 and {MAX_LABELS}", "pass the tokens of the longest text"
        )
    return value


@dataclass(frozen=True)
class Target:
    """The GPU that an estimate is for; sizes in bytes.

    ``available_bytes`` is what this process may use in all, ``context_bytes`` what the driver's context and, with
    several GPUs, NCCL take of it, ``context_high_bytes`` what they may take at most; the allocator gets the rest.
    ``context_source`` is ``"measured"`` or ``"table"``. The multiprocessors and the threads that each holds decide how
    large some kernels' buffers are. All are None or "" without a GPU.
    """

    name: str = ""
    compute_capability: str = _DEFAULT_CAPABILITY
    total_bytes: int | None = None
    available_bytes: int | None = None
    context_bytes: int | None = None
    context_high_bytes: int | None = None
    context_source: str = ""
    multiprocessors: int | None = None
    threads_per_multiprocessor: int | None = None

    @classmethod
    def find(cls, gpu: str | None) -> Target:
        """A GPU of the catalogue, or this machine's; empty without one. Raises ``NotFoundError`` for unknown names."""
        gpus = HardwareProfile.detect(gpu).gpus
        if not gpus:
            return cls()
        index, card = min(enumerate(gpus), key=lambda item: _available(item[1], 0))
        request = {"gpu": to_json(card), "torch": torch_version(), "nccl": len(gpus) > 1, "gpus": len(gpus)}
        device = native.call("memory.device", request)
        context = device["context_bytes"] + device["nccl_bytes"]
        available = _available(card, _torch_bytes(index, context))
        return cls(
            card.name, card.compute_capability, card.memory_total_bytes, available, context, device["high"],
            device["source"], device["multiprocessors"], device["threads_per_multiprocessor"],
        )  # fmt: skip

    @property
    def capability(self) -> tuple[int, int]:
        """The compute capability as two numbers."""
        major, _, minor = self.compute_capability.partition(".")
        return int(major), int(minor or 0)

    @property
    def limit_bytes(self) -> int | None:
        """The bytes that the allocator may reserve in total."""
        if self.available_bytes is None or self.context_bytes is None:
            return None
        return max(0, self.available_bytes - self.context_bytes)


def _available(gpu: GPU, reserved: int) -> int:
    """Free memory, and this process's own, which its training will use again.

    In a container the driver's process ids differ from the system's; ``reserved`` is then torch's figure.
    """
    if gpu.memory_free_bytes is None:
        return gpu.memory_total_bytes
    own = sum(p.memory_bytes or 0 for p in gpu.processes if p.pid == os.getpid())
    return min(gpu.memory_total_bytes, gpu.memory_free_bytes + (own or reserved))


def _torch_bytes(place: int, context: int) -> int:
    """The memory that torch uses on the GPU in this process; 0 before CUDA is initialized."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return 0
    reserved = int(torch.cuda.memory_reserved(place))
    return reserved + context if reserved else 0
