"""PyTorch's calls behind the kernels of ``timing.kernels``: each recipe takes sizes and returns a function to time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch.nn import functional

Run = Callable[[], object]
Make = Callable[..., Any]  # a random tensor of these sizes


def _convolution_gradient(make: Make, sizes: Sequence[int], of_input: bool) -> Run:
    clips, channels, length, filters, taps, stride = sizes
    x, weight = make(clips, channels, length), make(filters, channels, taps)
    gradient = make(clips, filters, (length - taps) // stride + 1)
    backward, outputs = torch.ops.aten.convolution_backward, [of_input, not of_input, False]
    return lambda: backward(gradient, x, weight, None, [stride], [0], [1], False, [0], 1, outputs)


def _attention_backward(make: Make, *sizes: int) -> Run:
    operands = [make(*sizes).requires_grad_() for _ in range(3)]
    gradient = make(*sizes)
    with torch.enable_grad():
        result = functional.scaled_dot_product_attention(*operands)
    return lambda: torch.autograd.grad(result, operands, gradient, retain_graph=True)


def _layer_norm_backward(make: Make, rows: int, row: int) -> Run:
    x, weight, bias, gradient = make(rows, row), make(row), make(row), make(rows, row)
    _, mean, deviation = torch.native_layer_norm(x, [row], weight, bias, 1e-5)
    backward, outputs = torch.ops.aten.native_layer_norm_backward, [True, True, True]
    return lambda: backward(gradient, x, [row], mean, deviation, weight, bias, outputs)


def _embedding(make: Make, tokens: int, vocabulary: int, width: int) -> Run:
    table = make(vocabulary, width)
    return partial(functional.embedding, torch.randint(vocabulary, (tokens,), device=table.device), table)


def _adamw(make: Make, parameters: int) -> Run:
    weight = make(parameters).requires_grad_()
    weight.grad = make(parameters)
    optimizer = torch.optim.AdamW([weight], fused=True)
    return lambda: optimizer.step()


RECIPES: dict[str, Callable[..., Run]] = {
    "linear": lambda make, m, n, k: partial(functional.linear, make(m, k), make(n, k)),
    "weight_gradient": lambda make, m, n, k: partial(torch.matmul, make(k, m).t(), make(k, n)),
    "bmm": lambda make, batch, m, n, k: partial(torch.bmm, make(batch, m, k), make(batch, k, n)),
    "convolution": lambda make, clips, channels, length, filters, taps, stride: partial(
        functional.conv1d, make(clips, channels, length), make(filters, channels, taps), stride=stride
    ),
    "convolution_weight_gradient": lambda make, *sizes: _convolution_gradient(make, sizes, of_input=False),
    "convolution_input_gradient": lambda make, *sizes: _convolution_gradient(make, sizes, of_input=True),
    "attention": lambda make, *sizes: partial(
        functional.scaled_dot_product_attention, make(*sizes), make(*sizes), make(*sizes)
    ),
    "attention_backward": _attention_backward,
    "add": lambda make, elements: partial(torch.add, make(elements), make(elements)),
    "gelu": lambda make, elements: partial(functional.gelu, make(elements)),
    "scale_rows": lambda make, rows, row: partial(torch.mul, make(rows, row), make(rows, 1)),
    "transposed_copy": lambda make, *sizes: make(*sizes).transpose(1, 2).contiguous,
    "column_sums": lambda make, rows, row: partial(torch.sum, make(rows, row), 0),
    "softmax": lambda make, rows, row: partial(torch.softmax, make(rows, row), -1),
    "layer_norm": lambda make, rows, row: partial(functional.layer_norm, make(rows, row), (row,), make(row), make(row)),
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
