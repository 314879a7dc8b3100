"""Scaled dot-product attention as CUDA would run it: which kernel is chosen, and what it saves for backward.

Rules: aten/src/ATen/native/transformers/cuda/sdp_utils.cpp (choice) and attention.cpp (masks and padding).
"""

from __future__ import annotations

from typing import Any

import torch

from ._log import EventLog
from ._torch_features import EFFICIENT_SHARES_HEADS, FILLS_MASKS, MATH_IN_FLOAT

aten = torch.ops.aten

_LOW = (torch.float16, torch.bfloat16)
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
