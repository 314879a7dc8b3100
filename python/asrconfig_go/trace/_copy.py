"""A copy of a model without its memory: parameters and buffers become imaginary, the original is left as it is."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from ._arena import Arena
from ._mode import SMALL
from ._quantized import imagine_weights
from ._trace_errors import TraceError

_UNQUANTIZED = "trace the model before quantizing or sharding it"


def imaginary_copy(model: nn.Module, arena: Arena) -> nn.Module:
    """The same modules, hooks and sharing, with tensors that hold no values. Small buffers and integers keep theirs.

    A compiled model is copied as the eager module that it wraps.
    """
    model = getattr(model, "_orig_mod", model)
    memo: dict[int, Any] = {}
    imagine_weights(model, lambda tensor: _imagined(tensor, arena), memo)
    for tensor in (*model.parameters(), *model.buffers()):
        if id(tensor) not in memo:
            memo[id(tensor)] = _stand_in(tensor, arena)
    for parameter in model.parameters():
        if parameter.grad is not None:
            memo[id(parameter.grad)] = None
    try:
        return copy.deepcopy(model, memo)
    except Exception as error:
        raise TraceError(
            f"the model, a {type(model).__name__}, cannot be copied: {error}",
            "pass a function without arguments that builds it instead: trace_training(lambda: MyModel(...), ...)",
        ) from error


def _stand_in(tensor: torch.Tensor, arena: Arena) -> torch.Tensor:
    data = tensor.detach()
    if data.layout is not torch.strided or type(data) not in (torch.Tensor, nn.Parameter):
        raise TraceError(
            f"a parameter of type {type(data).__name__} ({data.layout}) cannot be traced",
            _UNQUANTIZED,
        )
    large = (data.dtype.is_floating_point or isinstance(tensor, nn.Parameter)) and data.numel() > SMALL
    imagined = large or data.is_meta  # a tensor of the meta device has no values to keep
    data = _imagined(data, arena) if imagined else data.to("cpu", copy=True)
    if isinstance(tensor, nn.Parameter):
        return nn.Parameter(data, requires_grad=tensor.requires_grad)
    return data


def _imagined(data: torch.Tensor, arena: Arena) -> torch.Tensor:
    return arena.tensor(data.dtype, data.size(), _dense_stride(data), 0, data.numel() * data.element_size())


def _dense_stride(tensor: torch.Tensor) -> tuple[int, ...]:
    """The strides on the device: a slice of something larger becomes a tensor of its own there."""
    return tuple(torch.empty_like(tensor, device="meta").stride())
