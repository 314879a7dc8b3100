"""What a process sees of GPUs, and how it tells the processes that it starts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from .cards import Card, card

VARIABLE = "CUDA_STANDIN"  # of the environment: settings of the process that started this one
MAX_DEVICES = 16


@dataclass(frozen=True)
class Settings:
    """``gpu`` and ``memory_bytes`` are for all devices, or one for each; the rest is told at ``load``."""

    gpu: str | Sequence[str] = "T4"
    memory_bytes: int | Sequence[int] | None = None
    devices: int = 1
    context_bytes: int = 0
    copy_limit_bytes: int | None = None

    def cards(self) -> list[Card]:
        """One card for each device. Raises ``ValueError`` for what cannot be."""
        if not 1 <= self.devices <= MAX_DEVICES:
            raise ValueError(f"invalid devices {self.devices}: expected 1 to {MAX_DEVICES}")
        names = [self.gpu] * self.devices if isinstance(self.gpu, str) else list(self.gpu)
        sizes = [*self.memory_bytes] if isinstance(self.memory_bytes, Sequence) else [self.memory_bytes] * self.devices
        for what, values in (("gpu", names), ("memory_bytes", sizes)):
            if len(values) != self.devices:
                found = f"{len(values)} values of {what} for {self.devices} devices"
                raise ValueError(f"{found}: expected one, or one for each device")
        return [card(name, size, self.context_bytes) for name, size in zip(names, sizes, strict=True)]

    def to_json(self) -> str:
        """The text of ``VARIABLE``."""
        return json.dumps(asdict(self))
