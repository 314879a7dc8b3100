"""Memory that a GPU's kernels take beside their results, which no shape rule knows of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ._log import EventLog

aten = torch.ops.aten

KIB = 1024


def cublas_bytes(capability: tuple[int, int]) -> int:
    """PyTorch's default workspace of a cuBLAS handle: 32 MiB on Hopper, ":4096:2:16:8" (8.125 MiB) elsewhere.

    Source: parseChosenWorkspaceSize in aten/src/ATen/cuda/CublasHandlePool.cpp; from torch 2.12 on Blackwell and the
    generations after it get 32 MiB too.
    """
    return 32 * KIB * KIB if capability[0] >= 9 and capability != (8, 9) else (2 * 4096 + 8 * 16) * KIB


_MATMULS = {aten.mm.default, aten.addmm.default, aten.bmm.default, aten.baddbmm.default, aten._int_mm.default}


def _ctc_beta(args: Any) -> list[int]:
    """Log beta of the backward pass, as large as the saved log alpha: ctc_loss_backward_gpu_template, LossCTC.cu."""
    return [args[6].untyped_storage().nbytes()]


def _rounded(n: int, to: int) -> int:
    return -(-n // to) * to


def _efficient_backward(args: Any) -> list[int]:
    """Float32 sums of the queries' gradient for 16-bit inputs; the product grad * out, to be summed, for float32.

    aten/src/ATen/native/transformers/cuda/attention_backward.cu: ``delta``, and ``workspace`` of the CUTLASS kernel,
    whose tiles are 64 queries long and whose heads are padded to 64.
    """
    query = args[1]
    batch, heads, length, head = query.shape
    if query.dtype is torch.float32:
        return [4 * batch * heads * length * head]
    return [4 * batch * heads * _rounded(length, 64) * _rounded(head, 64)]


def _flash_backward(args: Any) -> list[int]:
    """``dq_accum`` and ``softmax_d`` of mha_bwd: aten/src/ATen/native/transformers/cuda/flash_attn/flash_api.cpp."""
    batch, heads, length, head = args[1].shape
    rows = 4 * batch * heads * _rounded(length, 128)
    return [rows, rows * _rounded(head, 32)]


_TEMPORARY: dict[Any, Callable[[Any], list[int]]] = {
    aten._ctc_loss_backward.default: _ctc_beta,
    aten._ctc_loss_backward.Tensor: _ctc_beta,
    aten._scaled_dot_product_efficient_attention_backward.default: _efficient_backward,
    aten._scaled_dot_product_flash_attention_backward.default: _flash_backward,
}


class Workspaces:
    """Adds each library's workspace when an operation first needs it."""

    def __init__(self, log: EventLog, capability: tuple[int, int], in_backward: Callable[[], bool]) -> None:
        self._log = log
        self._cublas = cublas_bytes(capability)
        self._in_backward = in_backward
        self._handles: set[bool] = set()

    @contextmanager
    def of(self, op: Any, name: str, args: Any) -> Iterator[None]:
        """Workspaces of one call, alive while the body makes its results."""
        yield
        if op in _MATMULS:
            self._matmul(name)
        rule = _TEMPORARY.get(op)
        if rule is not None:
            for size in rule(args):
                self._log.passing(size, name)

    def _matmul(self, name: str) -> None:
        """One workspace per thread that multiplies: autograd's device thread has a cuBLAS handle of its own."""
        thread = self._in_backward()
        if thread not in self._handles:
            self._handles.add(thread)
            self._log.staying(self._cublas, name)
