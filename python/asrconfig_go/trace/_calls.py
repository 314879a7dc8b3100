"""What each operation of a traced step computes and moves, from which times are estimated.

Only numbers that need the operation's arguments are found here: what they mean for a GPU is in Go (core/memory).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple

import torch

aten = torch.ops.aten

Numbers = tuple[int, ...]


class Call(NamedTuple):
    """One kind of call: equal ones differ in their numbers alone.

    ``layout``: "strided" where a copy changes the order of elements, "repeated" where an operand is expanded along
    the last dimension, "to_pinned" of a copy into pinned host memory and "host" of others between device and host,
    else "". ``numbers`` is how many each call has: bytes read and written, and before them batch,
    m, n and k of a product, or the length of a row.
    """

    op: str
    dtype: str
    phase: str
    layout: str
    numbers: int


@dataclass
class Calls:
    """The calls of a segment in their order, as numbers of ``Call`` and their own numbers.

    ``lanes``: as in ``Segment``.
    """

    kinds: list[int] = field(default_factory=list)
    numbers: list[Numbers] = field(default_factory=list)
    lanes: list[int] = field(default_factory=list)

    def add(self, kind: int, numbers: Numbers, lane: int) -> None:
        """One call more."""
        self.kinds.append(kind)
        self.numbers.append(numbers)
        self.lanes.append(lane)


def costs(
    op: Any, args: tuple[Any, ...], read: list[torch.Tensor], made: list[torch.Tensor]
) -> Iterable[tuple[str, Numbers]]:
    """The layout and the numbers of an operation; several where it runs several products."""
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
    """The type of the first tensor of floats, else of the first tensor."""
    known = list(tensors)
    floats = next((t for t in known if t.is_floating_point()), None)
    found = floats if floats is not None else known[0] if known else None
    return "" if found is None else str(found.dtype).removeprefix("torch.")


def _bytes(tensor: torch.Tensor) -> int:
    """What lies in memory: an expanded tensor is read from the few elements that it has."""
    whole = int(tensor.untyped_storage().nbytes())
    return min(int(tensor.numel() * tensor.element_size()), whole)


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


def _product(batch: int, m: int, n: int, k: int, left: torch.Tensor, right: torch.Tensor, out: torch.Tensor) -> Numbers:
    return batch, m, n, k, _bytes(left) + _bytes(right), _bytes(out)


def _mm(args: Any, read: list[torch.Tensor], made: list[torch.Tensor]) -> list[Numbers]:
    """Products of matrices, the last two of the tensors: with a bias it is the first."""
    left, right = read[-2:]
    *batch, m, k = left.shape
    return [_product(prod(batch), m, right.shape[-1], k, left, right, made[0])]


def _convolution(args: Any, read: list[torch.Tensor], made: list[torch.Tensor]) -> list[Numbers]:
    """The product that a convolution amounts to, in groups: positions × channels × filter."""
    x, weight, groups, transposed = args[0], args[1], args[8], args[6]
    small = x if transposed else made[0]  # a transposed convolution has its filter at each place of the input
    positions = small.numel() // max(1, small.shape[1])
    channels = weight.shape[0]
    return [_product(groups, positions, channels // groups, weight.numel() // channels, x, weight, made[0])]


def _convolution_backward(args: Any, read: list[torch.Tensor], made: list[torch.Tensor]) -> list[Numbers]:
    grad, x, weight, transposed, groups, wanted = args[0], args[1], args[2], args[7], args[9], args[10]
    small = x if transposed else grad
    positions, channels = small.numel() // max(1, small.shape[1]), weight.shape[0]
    n, k = channels // groups, weight.numel() // channels
    found = []
    if wanted[0]:
        found.append(_product(groups, positions, k, n, grad, weight, x))
    if wanted[1]:
        found.append(_product(groups, k, n, positions, grad, x, weight))
    return found


def _attention(first: int) -> Callable[[Any, list[torch.Tensor], list[torch.Tensor]], list[Numbers]]:
    """Fused attention, whose queries, keys and values are arguments ``first`` and the two after it."""

    def numbers(args: Any, read: list[torch.Tensor], made: list[torch.Tensor]) -> list[Numbers]:
        query, key = args[first], args[first + 1]
        heads = query.shape[0] * query.shape[1]
        written = sum(_bytes(t) for t in made if t.is_floating_point())
        return [(heads, query.shape[2], key.shape[2], query.shape[3], sum(map(_bytes, read)), written)]

    return numbers


_PRODUCTS: dict[Any, Callable[[Any, list[torch.Tensor], list[torch.Tensor]], list[Numbers]]] = {
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
