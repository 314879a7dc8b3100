"""Tensors without memory: they have addresses and can be viewed and differentiated, but hold no values.

The arena is one anonymous mapping that the kernel backs with nothing until a page is written. Tensors made here point
into it, so torch sees ordinary CPU tensors (autograd, autocast, hooks and views work as always), and no kernel is ever
run on them. Reading one by mistake returns zeros; regions may overlap, as nothing is written.
"""

from __future__ import annotations

import copy
import mmap
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from ._quantized import imagine_weights
from ._trace_errors import TraceError

SMALL = 64  # elements; a tensor up to this size stays real
_SIZE = 1 << 40
_NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)
_PAGE = 4096


class Arena:
    """A terabyte of addresses, mapped until the last tensor made by ``tensor`` is gone."""

    def __init__(self) -> None:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE
        self._map = mmap.mmap(-1, _SIZE, flags=flags)
        self._start = torch.frombuffer(self._map, dtype=torch.uint8, count=1).data_ptr()
        self._next = 0

    def holds(self, *tensors: torch.Tensor) -> bool:
        """Whether the values of any of these tensors are imaginary."""
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

    def dense(self, like: torch.Tensor, memory_format: torch.memory_format = torch.preserve_format) -> torch.Tensor:
        """The tensor that a device makes of ``like``: a slice of something larger becomes a tensor of its own."""
        stride = torch.empty_like(like, device="meta", memory_format=memory_format).stride()
        return self.tensor(like.dtype, like.size(), stride, 0, like.numel() * like.element_size())


def imaginary_copy(model: nn.Module, arena: Arena) -> nn.Module:
    """The same modules, hooks and sharing, with tensors that hold no values. Small buffers and integers keep theirs.

    A compiled model is copied as the eager module that it wraps.
    """
    model = getattr(model, "_orig_mod", model)
    memo: dict[int, Any] = {}
    imagine_weights(model, arena.dense, memo)
    for tensor in (*model.parameters(), *model.buffers()):
        if id(tensor) not in memo:
            memo[id(tensor)] = _stand_in(tensor, arena)
    for parameter in model.parameters():
        if parameter.grad is not None:
            memo[id(parameter.grad)] = None
    try:
        return copy.deepcopy(model, memo)
    except Exception as error:
        raise TraceError(
            f"the model, a {type(model).__name__}, cannot be copied: {error}",
            "pass a function without arguments that builds it instead: trace_training(lambda: MyModel(...), ...)",
        ) from error


def _stand_in(tensor: torch.Tensor, arena: Arena) -> torch.Tensor:
    data = tensor.detach()
    if data.layout is not torch.strided or type(data) not in (torch.Tensor, nn.Parameter):
        raise TraceError(
            f"a parameter of type {type(data).__name__} ({data.layout}) cannot be traced",
            "trace the model before quantizing or sharding it",
        )
    large = (data.dtype.is_floating_point or isinstance(tensor, nn.Parameter)) and data.numel() > SMALL
    imagined = large or data.is_meta  # a tensor of the meta device has no values to keep
    data = arena.dense(data) if imagined else data.to("cpu", copy=True)
    if isinstance(tensor, nn.Parameter):
        return nn.Parameter(data, requires_grad=tensor.requires_grad)
    return data
