"""The GPUs of this process as CUDA numbers them, once CUDA runs in it."""

from __future__ import annotations

import sys
from typing import Any


def cuda_order() -> list[str] | None:
    """Their UUIDs, as the driver writes them; None before CUDA runs, or where it does not answer."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return None
    try:
        found = [uuid_of(cuda.get_device_properties(i)) for i in range(cuda.device_count())]
    except RuntimeError:  # as after an illegal memory access
        return None
    return found if all(found) else None


def uuid_of(properties: Any) -> str:
    """The UUID of a device's ``properties``, ``""`` where this version of PyTorch does not report it."""
    uuid = getattr(properties, "uuid", None)
    return "" if uuid is None else f"GPU-{uuid}"
