"""What each operation of a traced step computes and moves; the library estimates times from it (core/memory)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple

import torch
from torch._ops import OpOverload

aten = torch.ops.aten

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


@dataclass
class Calls:
    """The calls of a segment in order: the number of each ``Call``, its own numbers, and its lane (see ``Segment``)."""

    kinds: list[int] = field(default_factory=list)
    numbers: list[Numbers] = field(default_factory=list)
    lanes: list[int] = field(default_factory=list)

    def add(self, kind: int, numbers: Numbers, lane: int) -> None:
        """Append a call."""
        self.kinds.append(kind)
        self.numbers.append(numbers)
        self.lanes.append(lane)


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
