"""GPU memory of the stand-in runtime that runs out at a chosen moment, by a real limit, and comes back at another."""

from __future__ import annotations

from typing import Any

import cuda_standin
import torch

_SMALL = 1 << 20  # larger requests come from segments of their own: c10/cuda/CUDACachingAllocator.cpp, kSmallSize


def out_of_memory_errors() -> int:
    """How often torch's allocator has raised its error in this process."""
    return int(torch.cuda.memory_stats().get("num_ooms", 0))


class Shortage:
    """While it lasts, something else holds all that the GPU has free, and every free block that torch has cached."""

    def __init__(self) -> None:
        self.active = False
        self._held: list[Any] = []  # storages: a callback that holds tensors cannot be restarted
        self._before = 0

    def begin(self) -> None:
        """The next allocation fails, unless something is freed before it."""
        torch.cuda.empty_cache()
        cuda_standin.take(0, torch.cuda.mem_get_info(0)[0])
        for size in _free_blocks():
            self._held.append(torch.empty(size, dtype=torch.uint8, device="cuda:0").untyped_storage())
        self.active, self._before = True, out_of_memory_errors()

    @property
    def failures(self) -> int:
        """How often memory has run out in it."""
        return out_of_memory_errors() - self._before if self.active else 0

    def end(self) -> None:
        """Give everything back; nothing when it does not last."""
        if self.active:
            self.active = False
            self._held.clear()
            cuda_standin.give_back(0)


def _free_blocks() -> list[int]:
    """Requests that fill what is free within the segments of torch's allocator, larger ones first."""
    sizes = []
    for segment in torch.cuda.memory_snapshot():
        most = _SMALL if segment["segment_type"] == "small" else 1 << 62
        for block in segment["blocks"]:
            free = block["size"] if block["state"] == "inactive" else 0
            while free and (most == _SMALL or free > _SMALL):
                sizes.append(min(free, most))
                free -= sizes[-1]
    return sorted(sizes, reverse=True)
