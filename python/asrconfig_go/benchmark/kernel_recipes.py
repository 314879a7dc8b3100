"""PyTorch's calls behind the kernels of ``timing.kernels``: each recipe takes sizes and gives what to run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn import functional

Run = Callable[[], object]
Make = Callable[..., Any]  # a random tensor of these sizes


def _linear(make: Make, m: int, n: int, k: int) -> Run:
    x, weight = make(m, k), make(n, k)
    return lambda: functional.linear(x, weight)


def _weight_gradient(make: Make, m: int, n: int, k: int) -> Run:
    gradient, x = make(k, m), make(k, n)
    return lambda: gradient.t() @ x


def _bmm(make: Make, batch: int, m: int, n: int, k: int) -> Run:
    left, right = make(batch, m, k), make(batch, k, n)
    return lambda: torch.bmm(left, right)


def _convolution(make: Make, clips: int, channels: int, length: int, filters: int, taps: int, stride: int) -> Run:
    x, weight = make(clips, channels, length), make(filters, channels, taps)
    return lambda: functional.conv1d(x, weight, stride=stride)


def _convolution_gradient(make: Make, sizes: Sequence[int], of_input: bool) -> Run:
    clips, channels, length, filters, taps, stride = sizes
    x, weight = make(clips, channels, length), make(filters, channels, taps)
    gradient = make(clips, filters, (length - taps) // stride + 1)
    backward, wanted = torch.ops.aten.convolution_backward, [of_input, not of_input, False]
    return lambda: backward(gradient, x, weight, None, [stride], [0], [1], False, [0], 1, wanted)


def _attention(make: Make, clips: int, heads: int, frames: int, size: int) -> Run:
    q, k, v = (make(clips, heads, frames, size) for _ in range(3))
    return lambda: functional.scaled_dot_product_attention(q, k, v)


def _attention_backward(make: Make, clips: int, heads: int, frames: int, size: int) -> Run:
    operands = [make(clips, heads, frames, size).requires_grad_() for _ in range(3)]
    gradient = make(clips, heads, frames, size)
    with torch.enable_grad():
        result = functional.scaled_dot_product_attention(*operands)
    return lambda: torch.autograd.grad(result, operands, gradient, retain_graph=True)


def _add(make: Make, elements: int) -> Run:
    x, y = make(elements), make(elements)
    return lambda: x + y


def _gelu(make: Make, elements: int) -> Run:
    x = make(elements)
    return lambda: functional.gelu(x)


def _scale_rows(make: Make, rows: int, row: int) -> Run:
    x, scale = make(rows, row), make(rows, 1)
    return lambda: x * scale


def _transposed_copy(make: Make, clips: int, frames: int, heads: int, size: int) -> Run:
    x = make(clips, frames, heads, size).transpose(1, 2)
    return lambda: x.contiguous()


def _column_sums(make: Make, rows: int, row: int) -> Run:
    x = make(rows, row)
    return lambda: x.sum(0)


def _softmax(make: Make, rows: int, row: int) -> Run:
    x = make(rows, row)
    return lambda: torch.softmax(x, -1)


def _layer_norm(make: Make, rows: int, row: int) -> Run:
    x, weight, bias = make(rows, row), make(row), make(row)
    return lambda: functional.layer_norm(x, (row,), weight, bias)


def _layer_norm_backward(make: Make, rows: int, row: int) -> Run:
    x, weight, bias, gradient = make(rows, row), make(row), make(row), make(rows, row)
    _, mean, deviation = torch.native_layer_norm(x, [row], weight, bias, 1e-5)
    backward, wanted = torch.ops.aten.native_layer_norm_backward, [True, True, True]
    return lambda: backward(gradient, x, [row], mean, deviation, weight, bias, wanted)


def _embedding(make: Make, tokens: int, vocabulary: int, width: int) -> Run:
    table = make(vocabulary, width)
    indices = torch.randint(vocabulary, (tokens,), device=table.device)
    return lambda: functional.embedding(indices, table)


def _adamw(make: Make, parameters: int) -> Run:
    weight = make(parameters).requires_grad_()
    weight.grad = make(parameters)
    optimizer = torch.optim.AdamW([weight], fused=True)
    return lambda: optimizer.step()


RECIPES: dict[str, Callable[..., Run]] = {
    "linear": _linear,
    "weight_gradient": _weight_gradient,
    "bmm": _bmm,
    "convolution": _convolution,
    "convolution_weight_gradient": lambda make, *sizes: _convolution_gradient(make, sizes, of_input=False),
    "convolution_input_gradient": lambda make, *sizes: _convolution_gradient(make, sizes, of_input=True),
    "attention": _attention,
    "attention_backward": _attention_backward,
    "add": _add,
    "gelu": _gelu,
    "scale_rows": _scale_rows,
    "transposed_copy": _transposed_copy,
    "column_sums": _column_sums,
    "softmax": _softmax,
    "layer_norm": _layer_norm,
    "layer_norm_backward": _layer_norm_backward,
    "embedding": _embedding,
    "adamw": _adamw,
}


def training_layer(make: Make, width: int = 64) -> tuple[Run, int]:
    """A small layer's forward and backward pass, and its kernels as a recorded step counts them."""
    x = make(32, width)
    weight, bias, scale, shift = (
        make(*sizes).requires_grad_() for sizes in ((width, width), (width,), (width,), (width,))
    )
    trained = [x.requires_grad_(), weight, bias, scale, shift]

    def run() -> None:
        with torch.enable_grad():
            hidden = functional.gelu(functional.linear(functional.layer_norm(x, (width,), scale, shift), weight, bias))
            y = x + functional.dropout(hidden, 0.1)
            torch.autograd.grad(y, trained, x.detach())

    return run, _FORWARD_KERNELS + _BACKWARD_KERNELS


_FORWARD_KERNELS = 5  # norm, product with its bias, GELU, dropout, sum
_BACKWARD_KERNELS = 9  # dropout, GELU, two products, the bias's sum, three of the norm, the residual's sum
