"""Saved tensors that lie in host memory until the backward pass: ``torch.autograd.graph.save_on_cpu``.

Offloaded checkpoints are saved so. For the CPU tensors of a trace torch's own would copy nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.utils._python_dispatch import _disable_current_modes

from ._arena import Arena
from ._log import EventLog

Copy = Callable[[torch.Tensor], torch.Tensor]


@contextmanager
def saved_on_host(log: EventLog, arena: Arena) -> Iterator[None]:
    """While it lasts, ``save_on_cpu`` takes tensors from the device to the host and back, as it does on a GPU."""

    def copied(tensor: torch.Tensor) -> torch.Tensor:
        """The tensor in a storage of its own, its elements in order."""
        with _disable_current_modes():
            if not arena.holds(tensor):
                return tensor.detach().clone(memory_format=torch.contiguous_format)
            size = tensor.size()
            stride = torch.empty(size, device="meta").stride()
            return arena.tensor(tensor.dtype, size, stride, 0, tensor.numel() * tensor.element_size())

    original = save_on_cpu.__init__
    save_on_cpu.__init__ = _hooks(log, copied)
    try:
        yield
    finally:
        save_on_cpu.__init__ = original


def _hooks(log: EventLog, copied: Copy) -> Callable[..., None]:
    def init(self: Any, pin_memory: bool = False, device_type: str = "cuda") -> None:
        def pack(tensor: torch.Tensor) -> torch.Tensor:
            if not tensor.is_contiguous():  # put in order on the device first: aten/src/ATen/native/cuda/Copy.cu
                size = tensor.numel() * tensor.element_size()
                with log.during(size, "aten.clone.default"):
                    log.copied(size, tensor)
            log.transferred(tensor, "aten.copy_.default", "to_pinned" if pin_memory else "host")
            return copied(tensor)

        def unpack(packed: torch.Tensor) -> torch.Tensor:
            tensor = copied(packed)
            log.birth(tensor, "aten._to_copy.default")
            log.transferred(tensor, "aten._to_copy.default", "host")
            return tensor

        saved_tensors_hooks.__init__(self, pack, unpack)

    return init
