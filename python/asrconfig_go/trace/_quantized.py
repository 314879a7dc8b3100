"""Weights of 8 and 4 bits, and the memory of bitsandbytes' kernels for them.

The rules are those of bitsandbytes/backends/cuda/ops.py (0.50). Where values decide, the usual case is assumed: an
input of 8 bits has no outliers, and 4 bits are always unpacked into a whole weight, which small batches (at most 1536
rows of input) may do without.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from .._core.training_session import override
from .event_log import EventLog

_KINDS = ("Int8Params", "Params4bit")
_PRODUCT = torch.ops.aten.mm.default


def is_quantized(weight: Tensor) -> bool:
    """Whether bitsandbytes computes with the weight."""
    return type(weight).__name__ in _KINDS


def statistics(module: nn.Module) -> Iterator[Tensor]:
    """The scales and tables that lie on the device beside a module's quantized weight."""
    weight = module._parameters.get("weight")
    if weight is None or not is_quantized(weight):
        return
    scales = getattr(weight, "SCB", None)
    scales = getattr(getattr(module, "state", None), "SCB", None) if scales is None else scales
    if scales is not None:
        yield scales
    state = getattr(weight, "quant_state", None)
    while state is not None:
        yield from (t for t in (state.absmax, state.code, state.offset) if isinstance(t, Tensor))
        state = state.state2


def imagine_weights(model: nn.Module, imagined: Callable[[Tensor], Tensor], memo: dict[int, Any]) -> None:
    """Put imaginary copies of quantized weights and their statistics into ``memo`` of ``copy.deepcopy``."""
    for module in model.modules():
        weight = module._parameters.get("weight")
        if weight is None or not is_quantized(weight) or id(weight) in memo:
            continue
        data = imagined(weight.data.as_subclass(Tensor))
        for tensor in statistics(module):
            memo[id(tensor)] = imagined(tensor)
        if type(weight).__name__ == "Int8Params":
            memo[id(weight)] = _eight_bits(module, weight, data, memo)
        else:
            memo[id(weight)] = _four_bits(weight, data, memo)


def _eight_bits(module: nn.Module, weight: nn.Parameter, data: Tensor, memo: dict[int, Any]) -> nn.Parameter:
    for same in (weight.CB, module.state.CB):  # the layer passes them on in its first forward pass
        if same is not None:
            memo[id(same)] = data
    made: nn.Parameter = type(weight)(data, requires_grad=False, has_fp16_weights=weight.has_fp16_weights)
    if weight.CB is not None:
        made.CB, made.SCB = data, memo[id(weight.SCB)]
    return made


def _four_bits(weight: nn.Parameter, data: Tensor, memo: dict[int, Any]) -> nn.Parameter:
    state = copy.deepcopy(weight.quant_state, memo)
    settings = {
        name: getattr(weight, name) for name in ("blocksize", "compress_statistics", "quant_type", "quant_storage")
    }
    made: nn.Parameter = type(weight)(data, requires_grad=False, quant_state=state, bnb_quantized=True, **settings)
    return made


@contextmanager
def quantized_kernels(log: EventLog) -> Iterator[None]:
    """Inside, layers of bitsandbytes take their path for a GPU."""
    from bitsandbytes.autograd import _functions as functions
    from bitsandbytes.nn import modules

    library = torch.library.Library("bitsandbytes", "IMPL")
    for name, kernel in _kernels(log).items():
        if hasattr(torch.ops.bitsandbytes, name):
            library.impl(name, kernel, "AutogradCPU")
    with ExitStack() as stack:
        stack.callback(library._destroy)
        if hasattr(functions, "MatMul8bitFp"):  # these two are for CPUs only
            stack.callback(override(functions, "MatMul8bitFp", functions.MatMul8bitLt))
        if hasattr(modules, "_convert_weight_packed_for_cpu"):
            stack.callback(override(modules, "_convert_weight_packed_for_cpu", lambda data, state: (data, state)))
        yield


def _kernels(log: EventLog) -> dict[str, Callable[..., Any]]:
    def scaled_product(
        x: Tensor, weight: Tensor, _: object, __: object, bias: Tensor | None = None, dtype: torch.dtype | None = None
    ) -> Tensor:
        sums = x.new_empty((*x.shape[:-1], weight.shape[0]), dtype=torch.int32)
        out = torch.empty_like(sums, dtype=torch.float16)
        log.call(_PRODUCT, str(_PRODUCT), (), [x, weight.t()], [out])
        if bias is not None and bias.dtype is not torch.float16:
            out.add_(bias)
        return out.to(dtype or torch.float16)

    def mixed_product(
        x: Tensor,
        low: Tensor,
        weight: Tensor,
        rows: object,
        columns: object,
        _: object = None,
        bias: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        outliers = x.new_empty(0)
        return scaled_product(low, weight, rows, columns, bias, x.dtype), outliers

    return {
        "int8_vectorwise_quant": _quantized_rows,
        "int8_scaled_mm": scaled_product,
        "int8_mixed_scaled_mm": mixed_product,
        "dequantize_blockwise": _unpacked_scales,
        "dequantize_4bit": _unpacked,
        "gemm_4bit": _unpacked_product,
    }


def _quantized_rows(x: Tensor, threshold: float = 0.0) -> tuple[Tensor, Tensor, Tensor | None]:
    scales = x.new_empty(x.numel() // x.shape[-1], dtype=torch.float32)
    low = x.new_empty(x.shape, dtype=torch.int8)
    if threshold <= 0.0:
        return low, scales, None
    (x.abs() >= threshold).any()  # for its memory; the answer is no
    return low, scales, x.new_empty(0, dtype=torch.int64)


def _unpacked_scales(x: Tensor, _: object, __: object, ___: int, dtype: torch.dtype) -> Tensor:
    return torch.empty_like(x, dtype=dtype)


def _unpacked(packed: Tensor, _: object, __: int, ___: str, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    return packed.new_empty(shape, dtype=dtype)


def _unpacked_product(
    x: Tensor, packed: Tensor, shape: Sequence[int], scales: Tensor, block: int, kind: str,
    bias: Tensor | None = None, low_scales: Tensor | None = None, table: object = None, offset: Tensor | None = None,
) -> Tensor:  # fmt: skip
    temporaries = [scales]  # all of them live to the end, as in bitsandbytes
    if low_scales is not None:
        temporaries = [widened := torch.empty_like(low_scales, dtype=torch.float32), widened + offset]
    product = torch.nn.functional.linear(x, packed.new_empty(shape, dtype=x.dtype), bias)
    temporaries.clear()
    return product
