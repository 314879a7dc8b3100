"""Which GPU of a plan is which of this process: CUDA may number unlike ones otherwise than the driver."""

from __future__ import annotations

from collections.abc import Sequence

from ..machine.cuda_devices import uuid_of
from .plan_parts import PlannedDevice


def planned_device(devices: Sequence[PlannedDevice], number: int) -> PlannedDevice | None:
    """What a plan gives the GPU that CUDA calls ``number`` here; None for one that it does not have.

    By UUID; of a plan for other GPUs of the same kind the one with the least memory to use.
    """
    import torch

    if number >= torch.cuda.device_count():
        return None
    card = torch.cuda.get_device_properties(number)
    same = [device for device in devices if device.uuid and device.uuid == uuid_of(card)]
    like = [d for d in devices if d.name == card.name and d.budget_bytes <= card.total_memory]
    return min(same or like, key=lambda device: device.budget_bytes, default=None)
