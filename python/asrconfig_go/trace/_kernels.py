"""Functions that take CUDA's path where the CPU's differs in memory: autocast's lists, fused dropout, attention.

They are registered with torch's dispatcher while a recorder is active, as traced tensors are CPU tensors.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from ._attention import Attention
from ._log import EventLog
from ._recurrent import Recurrent

aten = torch.ops.aten
_AUTOCAST = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)
_LOW = (torch.float16, torch.bfloat16)

# Run in float32 under CUDA's autocast, and left alone by the CPU's: AT_FORALL_FP32 in aten/src/ATen/autocast_mode.h.
_FLOAT32 = """acos asin cosh cosine_similarity dist erfinv exp expm1 group_norm layer_norm log log10 log1p log2
logsumexp native_layer_norm pdist pow.Scalar pow.Tensor_Scalar pow.Tensor_Tensor reciprocal renorm rms_norm rsqrt sinh
softplus tan"""
# The same where the result's type can be asked for: AT_FORALL_FP32_SET_OPT_DTYPE.
_FLOAT32_RESULT = "cumprod cumsum linalg_vector_norm log_softmax.int softmax.int sum sum.dim_IntList"


def _only_on_cuda(names: str) -> list[str]:
    """The names that this torch casts for CUDA and not for the CPU."""
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return [n for n in names.split() if has(f"aten::{n}", "AutocastCUDA") and not has(f"aten::{n}", "AutocastCPU")]


def _only_on_the_cpu() -> list[str]:
    """The names that this torch casts for the CPU and not for CUDA."""
    listed = torch._C._dispatch_get_registrations_for_dispatch_key
    return [n.removeprefix("aten::") for n in set(listed("AutocastCPU")) - set(listed("AutocastCUDA")) if "aten::" in n]


def _overload(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(aten, packet), overload or "default")


def _below_autocast(op: Any, *args: Any, **kwargs: Any) -> Any:
    with torch._C._ExcludeDispatchKeyGuard(_AUTOCAST):
        return op(*args, **kwargs)


def _to_float32(value: Any) -> Any:
    return value.float() if isinstance(value, torch.Tensor) and value.dtype in _LOW else value


def _in_float32(op: Any) -> Callable[..., Any]:
    def cast(*args: Any, **kwargs: Any) -> Any:
        args = tuple(_to_float32(a) for a in args)
        return _below_autocast(op, *args, **{k: _to_float32(v) for k, v in kwargs.items()})

    return cast


def _float32_result(op: Any) -> Callable[..., Any]:
    def ask(*args: Any, **kwargs: Any) -> Any:
        dtype = kwargs.get("dtype", args[2] if op in _DTYPE_THIRD and len(args) > 2 else None)
        if dtype is not None or args[0].dtype not in _LOW:
            return _below_autocast(op, *args, **kwargs)
        return _below_autocast(op, *args, **{**kwargs, "dtype": torch.float32})

    return ask


_DTYPE_THIRD = {aten.softmax.int, aten.log_softmax.int}


def _dropout(x: torch.Tensor, p: float, train: bool) -> torch.Tensor:
    """The fused kernel, which saves a mask of one byte per element: aten/src/ATen/native/Dropout.cpp."""
    if p == 0 or not train or x.numel() == 0:
        return x
    if p < 1:
        fused: torch.Tensor = aten.native_dropout(x, p, train)[0]
        return fused
    return x * torch.zeros((), dtype=x.dtype)


def _softmax(kernel: Any, x: torch.Tensor, dim: int, dtype: torch.dtype | None = None) -> Any:
    """The kernel converts half to float itself, without a copy of the input: aten/src/ATen/native/SoftMax.cpp."""
    if x.dtype is torch.float16 and dtype is torch.float32:
        return kernel(x, dim, True)
    return kernel(x if dtype is None else x.to(dtype), dim, False)


def _linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> Any:
    """aten/src/ATen/native/Linear.cpp, whose own adds the bias out of place while a dispatch mode is active."""
    if bias is None:
        return torch.matmul(x, weight.t())
    if x.dim() == 2:
        return torch.addmm(bias, x, weight.t())
    if x.dim() > 2 and x.is_contiguous():
        rows = torch.addmm(bias, x.view(-1, x.shape[-1]), weight.t())
        return aten._unsafe_view(rows, [*x.shape[:-1], rows.shape[-1]])
    return torch.matmul(x, weight.t()).add_(bias)


def register(capability: tuple[int, int], log: EventLog) -> torch.library.Library:
    """Register the functions; ``_destroy()`` of the result unregisters them."""
    library = torch.library.Library("aten", "IMPL")
    for name in _only_on_cuda(_FLOAT32):
        library.impl(name, _in_float32(_overload(name)), "AutocastCPU")
    for name in _only_on_cuda(_FLOAT32_RESULT):
        library.impl(name, _float32_result(_overload(name)), "AutocastCPU")
    for name in _only_on_the_cpu():
        library.impl(name, torch.library.fallthrough_kernel, "AutocastCPU")
    for key in ("AutogradCPU", "CPU"):
        library.impl("dropout", _dropout, key)
        library.impl("linear", _linear, key)
        library.impl("scaled_dot_product_attention", Attention(capability, log), key)
        library.impl("softmax.int", functools.partial(_softmax, aten._softmax), key)
        library.impl("log_softmax.int", functools.partial(_softmax, aten._log_softmax), key)
    Recurrent(log).register(library)
    return library
