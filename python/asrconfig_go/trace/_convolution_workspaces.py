"""Which convolutions cuDNN runs, and the workspaces that it asks for there.

torch allocates each workspace after the result's memory, and frees it before the next result:
raw_cudnn_convolution_*_out in aten/src/ATen/native/cudnn/Conv_v8.cpp. Their sizes are cuDNN's own heuristics, which
NVIDIA does not publish. The rule here follows its documentation: 16-bit convolutions run on tensor cores, whose kernels
require channels last, so that operands with another layout are copied. 32-bit ones need a small table in the forward
pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor
from torch._ops import OpOverload

from ._calls import Args

aten = torch.ops.aten

_LOW = (torch.float16, torch.bfloat16)
_CHANNELS_OF_TENSOR_CORES = 8
_TABLE = 16384


def workspaces(op: OpOverload, args: Args) -> list[int]:
    """Returns the bytes of the workspace after each result of a convolution or its backward pass; 0 for none."""
    if op is aten.convolution.default:
        x, weight, _, stride, padding, dilation, transposed, out_padding, groups = args[:9]
        y = _result(x, weight, stride, padding, dilation, transposed, out_padding, groups)
        needed = _needed(x, weight, y, stride, dilation, transposed, groups)
        return [_TABLE if x.dtype is torch.float32 and needed is not None else needed or 0]
    grad, x, weight, _, stride, _, dilation, transposed, _, groups, wanted = args[:11]
    needed = _needed(x, weight, list(grad.shape), stride, dilation, transposed, groups)
    return [needed or 0 for one in wanted[:2] if one]


def is_torchs_own(args: Args) -> bool:
    """Whether torch's own depthwise kernel runs a backward pass, rather than cuDNN."""
    _, x, weight, _, stride, _, dilation, transposed, _, groups = args[:10]
    return not _by_cudnn(x, weight, stride, dilation, transposed, groups)


def _by_cudnn(
    x: Tensor, weight: Tensor, stride: Sequence[int], dilation: Sequence[int], transposed: bool, groups: int
) -> bool:
    depthwise = not transposed and groups > 1 and x.shape[1] == groups
    return not depthwise or _depthwise_by_cudnn(x, weight, stride, dilation)


def _needed(
    x: Tensor,
    weight: Tensor,
    y: list[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    groups: int,
) -> int | None:
    """Bytes for copies of the three operands; None where cuDNN does not run."""
    if not _by_cudnn(x, weight, stride, dilation, transposed, groups):
        return None
    channels = y[1] if transposed else x.shape[1]
    if x.dtype not in _LOW or channels < _CHANNELS_OF_TENSOR_CORES or _channels_last(x, weight):
        return 0
    return int(sum(prod(shape) * x.element_size() for shape in (x.shape, weight.shape, y)))


def _channels_last(x: Tensor, weight: Tensor) -> bool:
    """Whether torch passes the operands with channels last: cudnn_conv_suggest_memory_format, ConvUtils.h."""
    if x.dim() != 4:
        return False
    last = torch.channels_last
    return any(t.is_contiguous(memory_format=last) and not t.is_contiguous() for t in (x, weight))


def _result(
    x: Tensor, weight: Tensor, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], transposed: bool,
    out_padding: Sequence[int], groups: int,
) -> list[int]:  # fmt: skip
    def at(values: Sequence[int], axis: int) -> int:
        return int(values[axis if len(values) > 1 else 0])

    lengths = []
    for axis, (n, taps) in enumerate(zip(x.shape[2:], weight.shape[2:], strict=True)):
        reach = at(dilation, axis) * (taps - 1)
        if transposed:
            lengths.append((n - 1) * at(stride, axis) - 2 * at(padding, axis) + reach + at(out_padding, axis) + 1)
        else:
            lengths.append((n + 2 * at(padding, axis) - reach - 1) // at(stride, axis) + 1)
    return [x.shape[0], weight.shape[1] * groups if transposed else weight.shape[0], *lengths]


def _depthwise_by_cudnn(x: Tensor, weight: Tensor, stride: Sequence[int], dilation: Sequence[int]) -> bool:
    """use_cudnn_depthwise and check_cudnn_depthwise_workload_with_filter, aten/src/ATen/native/Convolution.cpp.

    torch's own kernel needs no workspace. A convolution over time is one over an image of one row there.
    """
    if _channels_last(x, weight):
        return True
    if x.dtype is not torch.float16 or weight.dtype is not torch.float16 or x.dim() > 4:
        return False
    if any(d != 1 for d in dilation) or x.shape[1] < 32:
        return False
    height, width = (1, x.shape[2]) if x.dim() == 3 else x.shape[2:]
    step = stride[-1]
    if height == 1 and step == 1:
        return True
    if height != 1 and stride[0] != step:
        return False
    rows, taps = (1, weight.shape[2]) if weight.dim() == 3 else weight.shape[2:]
    if rows != taps or taps not in (1, 3, 5) or width < 7 or step not in (1, 2):
        return False
    batch, channels = x.shape[:2]
    if step == 1:
        return True
    if batch == 1:
        return bool(taps > 1 or width <= 28)
    if taps == 1:
        return bool(batch <= 16 and channels >= 128 and width <= 7)
    return bool(channels >= 512 or (channels >= 256 and width >= 28))
