"""In-place sums of gradients, which autograd does not make under a dispatch mode.

A tensor that is used twice gets two gradients. The engine adds one into the other when it alone holds that one, and
makes a third tensor only otherwise (can_accumulate_inplace in torch/csrc/autograd/input_buffer.cpp). A dispatch mode
makes it always take the second way, with a tensor and its fragmentation that a real run does not have.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ._modules import in_backward

ADD = torch.ops.aten.add.Tensor
# What autograd calls where no mode watches: the gradient of an index is written into its zeros. ``index_backward`` and
# ``gather_backward`` in torch/csrc/autograd/FunctionsManual.cpp make a further tensor only for tensor subclasses, for
# which they take everything under a mode.
WRITTEN = {
    torch.ops.aten.index_put.default: torch.ops.aten.index_put_.default,
    torch.ops.aten.scatter_add.default: torch.ops.aten.scatter_add_.default,
}
_storage_owners: Any = getattr(torch._C, "_storage_Use_Count", None)
_Owners = tuple[int, int, int]


def _owners(args: tuple[Any, ...]) -> _Owners:
    """The reference counts of the first tensor, its storage and its Python object, within a dispatch mode."""
    tensor = args[0]
    return tensor._use_count(), _storage_owners(tensor.untyped_storage()._cdata), sys.getrefcount(tensor)


class DirectMode(TorchDispatchMode):  # type: ignore[misc]
    """Called by torch without the switch of torch.compile before each operation."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


class _Watch(DirectMode):
    def __init__(self) -> None:
        super().__init__()
        self.counts: list[_Owners] = []

    def __torch_dispatch__(self, op: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        if op is ADD and in_backward():
            self.counts.append(_owners(args))
        return op(*args, **(kwargs or {}))


def _engine_alone() -> _Owners | None:
    """The counts when only the engine refers to a gradient; None where this torch does not expose them."""
    if _storage_owners is None or not hasattr(torch.Tensor, "_use_count"):
        return None
    x = torch.ones(1, requires_grad=True)
    with torch.enable_grad(), _Watch() as watch:
        twice = x * 2
        (twice * 3 + twice * 4).backward()
    return watch.counts[0] if watch.counts else None


class Accumulation:
    """Whether the engine would add the second gradient into the first: only when nothing else refers to the first.

    The gradient of a transposed weight, a view, never qualifies. A backward formula that adds two tensors of its own
    looks the same, and is rare.
    """

    def __init__(self) -> None:
        self._alone = _engine_alone()

    def in_place(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """For the arguments of an addition; call it directly in ``__torch_dispatch__``, whose frames count."""
        if self._alone is None or kwargs or not in_backward() or torch.is_grad_enabled():
            return False
        if not all(isinstance(a, torch.Tensor) for a in args) or args[0].size() != args[1].size():
            return False
        return _owners(args) == self._alone and _dense(args[0])


def _dense(tensor: torch.Tensor) -> bool:
    """Whether the elements fill the memory between the first and the last, each once, in some order of axes."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.size(), strict=True)):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True
