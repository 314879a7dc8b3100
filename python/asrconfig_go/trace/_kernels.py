"""What a GPU runs where a CPU runs something else: autocast's lists, fused dropout, attention kernels.

They are registered with torch's dispatcher while a recorder is active, as traced tensors are CPU tensors.

Rules: aten/src/ATen/native/transformers/cuda/sdp_utils.cpp (choice) and attention.cpp (masks and padding).

A build for the CPU has only the version number to ask for.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch._ops import OpOverload

from ._cudnn import Recurrent
from .event_log import EventLog

_VERSION = tuple(int(n) for n in torch.__version__.split(".")[:2])

# Workspaces of matrix products, aten/src/ATen/cuda/CublasHandlePool.cpp: from 2.15 on TORCH_CUBLAS_WORKSPACE_CACHE is
# off. cuBLASLt's was taken for one call up to 2.8, kept from 2.9 on, and is a part of cuBLAS's from 2.12 on.
KEEPS_CUBLAS = _VERSION < (2, 15)
KEEPS_CUBLAS_LT = (2, 9) <= _VERSION < (2, 15)
SHARES_CUBLAS = (2, 12) <= _VERSION < (2, 15)

# _efficient_attention_forward in aten/src/ATen/native/transformers/cuda/attention.cu: without dropout, too, the seed
# and its offset are on the device, and keys may have fewer heads than queries.
EFFICIENT_SEEDS_ON_DEVICE = _VERSION >= (2, 14)
EFFICIENT_SHARES_HEADS = _VERSION >= (2, 14)
FLASH_SEEDS_ON_DEVICE = _VERSION >= (2, 7)  # mha_fwd in flash_attn/flash_api.cpp, the same folder

# convert_boolean_attn_mask and _scaled_dot_product_attention_math in aten/src/ATen/native/transformers/attention.cpp.
FILLS_MASKS = _VERSION < (2, 5)
MATH_IN_FLOAT = _VERSION >= (2, 5)

# ConfigureAndLaunchGammaBetaBackwardKernel, aten/src/ATen/native/cuda/layer_norm_kernel.cu.
SPLITS_NORMS = _VERSION >= (2, 8)


_FLASH_HEAD = 256  # the widest head that flash attention takes
_MASK_ALIGNMENT = 8  # elements; a mask whose rows do not fill up is padded


class Attention:
    """Replaces ``aten::scaled_dot_product_attention``, as a GPU of this compute capability computes it."""

    def __init__(self, capability: tuple[int, int], log: EventLog) -> None:
        self._capability = capability
        self._log = log

    def __call__(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        *,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Any:
        """Query, key and value are (batch, heads, length, head size)."""
        fused = _fits_fused(query, key, value, attn_mask, enable_gqa)
        if fused and self._flash(query, key, value, attn_mask, is_causal):
            return _flash(query, key, value, dropout_p, is_causal, scale)
        if fused and self._efficient(query, key, value):
            # No local refers to the additive mask: it is freed with its padded copy, before the kernel's results.
            bias = self._bias(_additive(attn_mask, query.dtype), query)
            save = torch.is_grad_enabled() and any(x.requires_grad for x in (query, key, value))
            kernel = aten._scaled_dot_product_efficient_attention
            return kernel(query, key, value, bias, save, dropout_p, is_causal, scale=scale)[0]
        mask = _additive(attn_mask, query.dtype)
        return _math(query, key, value, mask, dropout_p, is_causal, scale, enable_gqa)

    def _flash(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, causal: bool
    ) -> bool:
        if self._capability < (8, 0) or mask is not None or (causal and query.shape[2] != key.shape[2]):
            return False
        head = query.shape[-1]
        return query.dtype in _LOW and head <= _FLASH_HEAD and key.shape[-1] == value.shape[-1] == head

    def _efficient(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> bool:
        if query.dtype is torch.bfloat16 and self._capability < (8, 0):
            return False
        if key.shape[1] != query.shape[1] and not EFFICIENT_SHARES_HEADS:
            return False
        heads = (query.shape[-1], value.shape[-1])
        aligned = all(head % self._alignment(query.dtype) == 0 for head in heads)
        return query.dtype in (*_LOW, torch.float32) and aligned and key.shape[-1] == query.shape[-1]

    def _alignment(self, dtype: torch.dtype) -> int:
        """Elements to which a head fills up for the kernel's tensor cores: minimum_gemm_alignment in sdp_utils.cpp."""
        if dtype is torch.float32:
            return 4 if self._capability >= (8, 0) else 1
        return 8 if self._capability >= (7, 0) else 1

    def _bias(self, mask: torch.Tensor | None, query: torch.Tensor) -> torch.Tensor | None:
        """The mask for all heads, its rows padded to what the kernel wants: pad_bias in attention.cpp."""
        if mask is None:
            return None
        columns = mask.shape[-1]
        missing = -columns % _MASK_ALIGNMENT
        with self._log.padding(mask, _MASK_ALIGNMENT) as at_every_length:
            if missing:
                mask = torch.nn.functional.pad(mask, (0, missing))[..., :columns]
            elif at_every_length:
                mask = mask.clone()
        return mask.expand(*query.shape[:-1], columns)


def _fits_fused(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, shares_heads: bool
) -> bool:
    """Whether the fused kernels take such shapes: they broadcast neither batches nor, unless asked, heads.

    check_batch_size_and_num_heads_dense and its neighbours in sdp_utils_cpp.h.
    """
    qkv = (query, key, value)
    if any(tensor.dim() != 4 for tensor in qkv) or len({tensor.shape[0] for tensor in qkv}) > 1:
        return False
    if key.shape[1] != value.shape[1] or not (query.shape[2] and key.shape[2]):
        return False
    if key.shape[1] != query.shape[1] and not (shares_heads and query.shape[1] % key.shape[1] == 0):
        return False
    last = [tensor.stride(-1) for tensor in (*qkv, mask) if tensor is not None]
    return all(stride == 1 for stride in last) or (query.shape[-1] == 1 and mask is None)


def _additive(mask: torch.Tensor | None, dtype: torch.dtype) -> torch.Tensor | None:
    """convert_boolean_attn_mask: both values as tensors, then the choice between them."""
    if mask is None or mask.dtype is not torch.bool:
        return mask
    if FILLS_MASKS:  # torch 2.4: zeros, then filled where the inverted mask says so
        filled = torch.zeros_like(mask, dtype=dtype)
        mask.logical_not()
        return filled
    values = mask.new_empty((), dtype=dtype), mask.new_empty((), dtype=dtype)
    chosen = torch.zeros_like(mask, dtype=dtype)  # not torch.where: the values are not read, and slow to compute
    del values
    return chosen


def _flash(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, p: float, causal: bool, scale: float | None) -> Any:
    head = q.shape[-1]
    if scale is None:
        scale = head**-0.5
    missing = -head % 8
    if missing:
        q, k, v = (torch.nn.functional.pad(x, (0, missing)) for x in (q, k, v))
    out = aten._scaled_dot_product_flash_attention(q, k, v, p, causal, False, scale=scale)[0]
    return out[..., :head] if missing else out


def _math(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None,
    p: float,
    causal: bool,
    scale: float | None,
    shares_heads: bool,
) -> Any:
    """_scaled_dot_product_attention_math in aten/src/ATen/native/transformers/attention.cpp.

    Written out, as torch's own adds the mask out of place while a dispatch mode is active.
    """
    dtype, root = q.dtype, (q.shape[-1] ** -0.5 if scale is None else scale) ** 0.5
    q, k, v = (x.float() if dtype in _LOW and MATH_IN_FLOAT else x for x in (q, k, v))
    scaled = q * root
    if causal:
        mask = _additive(torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).tril(), q.dtype)
    keys, values = k, v
    if shares_heads and k.shape[-3] != q.shape[-3]:
        keys, values = (x.repeat_interleave(q.shape[-3] // x.shape[-3], -3) for x in (k, v))
    weights = torch.matmul(scaled, keys.transpose(-2, -1) * root)
    if mask is not None:
        weights.add_(mask)
    weights = getattr(aten, "_safe_softmax", torch.softmax)(weights, -1)  # from torch 2.5 on
    if p > 0:
        weights = torch.dropout(weights, p, True)
    returned = weights.to(dtype)  # the second result, which is not used
    out = torch.matmul(weights, values).to(dtype)
    del returned
    return out


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


def _below_autocast(op: OpOverload, *args: object, **kwargs: object) -> Any:
    with torch._C._ExcludeDispatchKeyGuard(_AUTOCAST):
        return op(*args, **kwargs)


def _to_float32(value: object) -> object:
    return value.float() if isinstance(value, torch.Tensor) and value.dtype in _LOW else value


def _in_float32(op: OpOverload) -> Callable[..., Any]:
    def cast(*args: object, **kwargs: object) -> object:
        args = tuple(_to_float32(a) for a in args)
        return _below_autocast(op, *args, **{k: _to_float32(v) for k, v in kwargs.items()})

    return cast


def _float32_result(op: OpOverload) -> Callable[..., Any]:
    def ask(*args: Any, **kwargs: object) -> object:
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


def _softmax(kernel: OpOverload, x: torch.Tensor, dim: int, dtype: torch.dtype | None = None) -> Any:
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
