"""What each call of a traced step computes and moves, and the phase and the module in which it runs.

The library estimates times from it (core/memory).
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from math import prod
from typing import Any, NamedTuple

import torch
from torch import nn
from torch._ops import OpOverload
from torch.nn.modules import module as hooks
from torch.nn.utils.parametrize import ParametrizationList
from torch.optim import optimizer as optimizers

aten = torch.ops.aten

_node: Callable[[], Any] = getattr(torch._C, "_current_autograd_node", lambda: None)
_graph_task: Callable[[], int] = getattr(torch._C, "_current_graph_task_id", lambda: -1)
_sequence: Callable[[], int] = getattr(torch._C._autograd, "_get_sequence_nr", lambda: 0)

Numbers = tuple[int, ...]
Args = tuple[Any, ...]  # positional arguments of an operation
Kwargs = dict[str, Any]


class Call(NamedTuple):
    """One kind of call. Calls of the same kind differ only in their numbers.

    ``layout``: "strided" where a copy changes the order of elements, "repeated" where an operand is expanded along
    the last dimension, "to_pinned" of a copy into pinned host memory and "host" of others between device and host,
    else "". ``numbers`` is how many each call has: batch, m, n and k of a product, or the length of a row, and then the
    bytes read and written.
    """

    op: str
    dtype: str
    phase: str
    layout: str
    numbers: int


def costs(
    op: OpOverload, args: Args, read: list[torch.Tensor], made: list[torch.Tensor]
) -> Iterable[tuple[str, Numbers]]:
    """Returns the layout and the numbers of an operation, once for each product that it runs."""
    rule = _PRODUCTS.get(op)
    if rule is not None:
        yield from (("", numbers) for numbers in rule(args, read, made))
        return
    moved = sum(map(_bytes, read)), sum(map(_bytes, made))
    if op in _ROWS:
        yield "", (made[0].shape[-1] if made and made[0].dim() else 1, *moved)
    elif any(moved):
        yield _layout(read, made), moved


def type_name(tensors: Iterable[torch.Tensor]) -> str:
    """Returns the dtype of the first floating-point tensor, else of the first tensor."""
    candidates = list(tensors)
    floats = next((t for t in candidates if t.is_floating_point()), None)
    chosen = floats if floats is not None else candidates[0] if candidates else None
    return "" if chosen is None else str(chosen.dtype).removeprefix("torch.")


def _bytes(tensor: torch.Tensor) -> int:
    """An expanded tensor is read from the few elements of its storage."""
    return min(int(tensor.numel() * tensor.element_size()), int(tensor.untyped_storage().nbytes()))


def _layout(read: list[torch.Tensor], made: list[torch.Tensor]) -> str:
    if not made or not read or not made[0].dim():
        return ""
    out = made[0]
    for tensor in read:
        if tensor.shape == out.shape and tensor.stride() != out.stride() and tensor.numel() > 1:
            return "strided"
        if tensor.dim() and out.shape[-1] > 1 and out.numel() > tensor.numel() > 1 and tensor.shape[-1] == 1:
            return "repeated"
    return ""


def _product(batch: int, m: int, n: int, k: int, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> Numbers:
    return batch, m, n, k, _bytes(a) + _bytes(b), _bytes(out)


def _mm(args: Args, read: list[torch.Tensor], made: list[torch.Tensor]) -> list[Numbers]:
    """The matrices are the last two tensors: a bias comes first."""
    a, b = read[-2:]
    *batch, m, k = a.shape
    return [_product(prod(batch), m, b.shape[-1], k, a, b, made[0])]


def _convolution(args: Args, read: list[torch.Tensor], made: list[torch.Tensor]) -> list[Numbers]:
    """A convolution as grouped matrix products: positions × channels × filter."""
    x, weight, groups, transposed = args[0], args[1], args[8], args[6]
    small = x if transposed else made[0]  # a transposed convolution has its filter at each place of the input
    positions = small.numel() // max(1, small.shape[1])
    channels = weight.shape[0]
    return [_product(groups, positions, channels // groups, weight.numel() // channels, x, weight, made[0])]


def _convolution_backward(args: Args, read: list[torch.Tensor], made: list[torch.Tensor]) -> list[Numbers]:
    grad, x, weight, transposed, groups, wanted = args[0], args[1], args[2], args[7], args[9], args[10]
    small = x if transposed else grad
    positions, channels = small.numel() // max(1, small.shape[1]), weight.shape[0]
    n, k = channels // groups, weight.numel() // channels
    products = []
    if wanted[0]:
        products.append(_product(groups, positions, k, n, grad, weight, x))
    if wanted[1]:
        products.append(_product(groups, k, n, positions, grad, x, weight))
    return products


def _attention(first: int) -> Callable[[Args, list[torch.Tensor], list[torch.Tensor]], list[Numbers]]:
    """Fused attention, whose query and key are arguments ``first`` and the next one."""

    def numbers(args: Args, read: list[torch.Tensor], made: list[torch.Tensor]) -> list[Numbers]:
        query, key = args[first], args[first + 1]
        heads = query.shape[0] * query.shape[1]
        written = sum(_bytes(t) for t in made if t.is_floating_point())
        return [(heads, query.shape[2], key.shape[2], query.shape[3], sum(map(_bytes, read)), written)]

    return numbers


_PRODUCTS: dict[OpOverload, Callable[[Args, list[torch.Tensor], list[torch.Tensor]], list[Numbers]]] = {
    aten.mm.default: _mm,
    aten.bmm.default: _mm,
    aten.addmm.default: _mm,
    aten.baddbmm.default: _mm,
    aten.convolution.default: _convolution,
    aten.convolution_backward.default: _convolution_backward,
    aten._scaled_dot_product_flash_attention.default: _attention(0),
    aten._scaled_dot_product_efficient_attention.default: _attention(0),
    aten._scaled_dot_product_flash_attention_backward.default: _attention(1),
    aten._scaled_dot_product_efficient_attention_backward.default: _attention(1),
}
_ROWS = {
    aten._softmax.default,
    aten._log_softmax.default,
    aten._softmax_backward_data.default,
    aten._log_softmax_backward_data.default,
}


def in_backward() -> bool:
    """Whether autograd is running its backward pass in this thread."""
    return bool(_graph_task() != -1)


class Whereabouts:
    """Follows module calls and optimizer steps by torch's global hooks.

    ``entered`` is called at each outermost module call, ``stepping`` before (False) and after (True) each step.
    """

    def __init__(
        self, entered: Callable[[nn.Module], None], stepping: Callable[[torch.optim.Optimizer, bool], None]
    ) -> None:
        self.resting = "forward"  # the phase outside of backward passes and optimizer steps
        self.loading = ""  # the module whose parameters are put on the device
        self._entered = entered
        self._stepping = stepping
        self._stack: list[str] = []
        self._names: dict[int, str] = {}
        self._optimizing = 0
        self._starts: list[int] = []  # autograd sequence numbers at which the running module changed
        self._owners: list[str] = []  # that module

    def hooked(self) -> ExitStack:
        """Global hooks, removed when the stack closes."""
        stack = ExitStack()
        for handle in (
            hooks.register_module_forward_pre_hook(self._enter),
            hooks.register_module_forward_hook(self._leave, always_call=True),
            optimizers.register_optimizer_step_pre_hook(self._start_step),
            optimizers.register_optimizer_step_post_hook(self._end_step),
        ):
            stack.callback(handle.remove)
        return stack

    def now(self) -> tuple[str, str]:
        """The phase and the module's qualified name; "" for work outside any module."""
        if in_backward():
            return "backward", self._stack[-1] if self._stack else self._owner()
        if self._optimizing:
            return "optimizer", ""
        return self.resting, self._stack[-1] if self._stack else self.loading

    def at_work(self) -> bool:
        """Whether a module, a backward pass or an optimizer runs at this moment."""
        return bool(self._stack or self._optimizing or in_backward())

    def _owner(self) -> str:
        node = _node()
        if node is None or not self._starts:
            return ""
        place = bisect.bisect_right(self._starts, node._sequence_nr()) - 1
        return self._owners[place] if place >= 0 else ""

    def _note(self) -> None:
        """Attribute autograd nodes from the next one on to the module on top of the stack."""
        if in_backward():
            return  # a recomputed layer: its nodes are walked at once, while the stack names the module
        start = _sequence()
        owner = self._stack[-1] if self._stack else ""
        if self._starts and self._starts[-1] == start:
            self._owners[-1] = owner
        else:
            self._starts.append(start)
            self._owners.append(owner)

    def _enter(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        if not self._stack:
            self._names.update((id(m), name) for name, m in module.named_modules())
            if not in_backward() and not isinstance(module, ParametrizationList):
                self._entered(module)  # a parametrization is also called while its module is built
        self._stack.append(self._names.get(id(module), type(module).__name__))
        self._note()

    def _leave(self, module: nn.Module, args: object, output: object) -> None:
        self._stack.pop()
        self._note()

    def _start_step(self, optimizer: torch.optim.Optimizer, *_: object) -> None:
        self._stepping(optimizer, False)
        self._optimizing += 1

    def _end_step(self, optimizer: torch.optim.Optimizer, *_: object) -> None:
        self._optimizing -= 1
        self._stepping(optimizer, True)
