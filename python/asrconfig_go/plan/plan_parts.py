"""Records of a plan: sizes in bytes, durations in seconds."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from .._core.records import Range
from ..predict.hardware import uuid_of


@dataclasses.dataclass(frozen=True)
class Decision:
    """One setting with the reason for its value, numbers and units included."""

    setting: str
    value: str
    reason: str
    alternative: str = ""
    """The alternative value; empty for none."""
    gain: str = ""
    """Of the value over the alternative: ``"1.4× faster"``, ``"needs 3.10 GiB less"``."""


@dataclasses.dataclass(frozen=True)
class PlannedBucket:
    """A range of durations whose clips share micro-batches."""

    up_to_s: float
    clips: int
    micro_batch: int | None
    """What fits for its longest clip; None where that is not known."""


@dataclasses.dataclass(frozen=True)
class PlannedDevice:
    """What one GPU does in a step."""

    index: int
    uuid: str
    """``""`` when planned from the catalogue."""
    name: str
    samples: int
    """Clips of an optimizer step."""
    micro_batch_size: int
    """Clips of the longest length that are computed at once."""
    peak_bytes: int
    """Predicted, context included."""
    budget_bytes: int
    """Available memory with the safety margin."""


def planned_device(devices: Sequence[PlannedDevice], number: int) -> PlannedDevice | None:
    """The planned share of the GPU with CUDA's index ``number``; None for a GPU that is not in the plan.

    GPUs match by UUID, as CUDA and the driver may order unlike GPUs differently. In a plan for other GPUs of the same
    kind, the one with the smallest budget is returned.
    """
    import torch

    if number >= torch.cuda.device_count():
        return None
    card = torch.cuda.get_device_properties(number)
    same = [device for device in devices if device.uuid and device.uuid == uuid_of(card)]
    like = [d for d in devices if d.name == card.name and d.budget_bytes <= card.total_memory]
    return min(same or like, key=lambda device: device.budget_bytes, default=None)


@dataclasses.dataclass(frozen=True)
class MemoryPart:
    """A share of the predicted memory."""

    name: str
    bytes: int


@dataclasses.dataclass(frozen=True)
class PlannedStepParts:
    """Seconds of an optimizer step, as they add up."""

    compute: Range
    memory: Range
    launches: Range
    optimizer: Range
    exchange: Range
    overhead: Range


@dataclasses.dataclass(frozen=True)
class PlannedRunParts:
    """Hours of a run, as they add up."""

    training: Range
    """All epochs, the loader's part in them."""
    evaluation: Range
    """All evaluations, generation in them."""
    checkpoints: Range
    """Written to disk."""
    start_up: Range
    """Before the first step, and what the first steps take longer."""


@dataclasses.dataclass(frozen=True)
class PlannedTimes:
    """What training takes: estimates, each a range."""

    step_s: Range
    parts: PlannedStepParts
    """Seconds of an optimizer step."""
    epoch_hours: Range
    run_hours: Range
    """Hours of the whole run."""
    run_parts: PlannedRunParts
    """Hours that add up to them."""
    audio_rate: Range
    """Seconds of audio trained on per second."""
    bound: str
    """The largest part of the time: compute, memory, launches, optimizer, exchange, overhead or loader."""
    calibrated: bool
    """By measured steps."""
    measured: str
    """The day on which kernels of this card were measured that the times rest on; "" for the model's own."""
    cost_usd: Range | None
    """Of the run on all GPUs; None where no price is known."""
    energy_kwh: Range | None
    """Of the run, GPUs alone; None where the board power is not known."""


@dataclasses.dataclass(frozen=True)
class Arithmetic:
    """Multiplications and additions of the model's products forward and backward, two for each multiply-add.

    What gradient checkpointing and fused attention compute again is left out, as model FLOPs utilization leaves it out.
    """

    clip_flops: tuple[float, ...]
    """Of a clip: a constant, for each unit, for its square."""
    unit: str
    """``"seconds"`` of the padded clip; ``"labels"``, tokens of its padded text, where audio has a fixed length."""
    rate: float | None
    """FLOP/s of the slowest GPU in the plan's precision, as published; None where that is not known."""

    def flops(self, units: float) -> float:
        """The FLOPs of a clip of so many units."""
        constant, linear, square = self.clip_flops
        return constant + units * (linear + units * square)


@dataclasses.dataclass(frozen=True)
class Alternative:
    """An alternative to the plan."""

    name: str
    what: str
    """In words and numbers: ``4 × 8, float16, checkpointing``."""
    fits: bool | None
    """None where that is not known."""
    peak_bytes: int | None
    """Predicted for a batch of the longest clips."""
    epoch_hours: Range | None
    """None where it does not fit, or nothing is known of the device's speed."""
    speed: float | None
    """Of the plan over this one: 1.5 is a plan 1.5 times as fast."""
    why: str = ""
    """Why it was not chosen although it is faster; empty where it is not."""
