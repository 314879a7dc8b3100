"""Tensors without memory: they have addresses and can be viewed and differentiated, but hold no values.

The arena is one anonymous mapping that the kernel backs with nothing until a page is written. Tensors made here point
into it, so torch sees ordinary CPU tensors (autograd, autocast, hooks and views work as always), and no kernel is ever
run on them. Reading one by mistake gives zeros; regions may overlap, because nobody writes.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence

import torch

_SIZE = 1 << 40
_NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)
_PAGE = 4096


class Arena:
    """A terabyte of addresses. Tensors made by ``tensor`` keep it mapped; it goes when the last one does."""

    def __init__(self) -> None:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE
        self._map = mmap.mmap(-1, _SIZE, flags=flags)
        self._start = torch.frombuffer(self._map, dtype=torch.uint8, count=1).data_ptr()
        self._next = 0

    def holds(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor's values are imaginary."""
        return bool(0 <= tensor.data_ptr() - self._start < _SIZE)

    def holds_one(self, tensors: list[torch.Tensor]) -> bool:
        """Whether the values of one of them are imaginary."""
        start = self._start
        return bool([t for t in tensors if 0 <= t.data_ptr() - start < _SIZE])

    def tensor(
        self, dtype: torch.dtype, size: Sequence[int], stride: Sequence[int], offset: int, nbytes: int
    ) -> torch.Tensor:
        """A tensor over a storage of ``nbytes`` of its own; ``offset`` in elements, as in ``Tensor.as_strided``."""
        if nbytes > _SIZE:
            raise MemoryError(f"a tensor of {nbytes} bytes, {tuple(size)} of {dtype}, is larger than a terabyte")
        if self._next + nbytes > _SIZE:
            self._next = 0
        flat = torch.frombuffer(self._map, dtype=dtype, count=-(-nbytes // dtype.itemsize), offset=self._next)
        self._next += -(-nbytes // _PAGE) * _PAGE
        return flat.set_(flat.untyped_storage(), offset, size, stride)
