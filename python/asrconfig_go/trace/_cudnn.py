"""What cuDNN allocates: workspaces of convolutions, and recurrent layers, which the CPU would run step by step.

torch allocates the workspace of a convolution after the result's memory, and frees it before the next result:
raw_cudnn_convolution_*_out in aten/src/ATen/native/cudnn/Conv_v8.cpp. Their sizes are cuDNN's own heuristics, which
NVIDIA does not publish. The rule here follows its documentation: 16-bit convolutions run on tensor cores, whose kernels
require channels last, so that operands with another layout are copied. 32-bit ones need a small table in the forward
pass.

Recurrent layers: aten/src/ATen/native/cudnn/RNN.cpp (``_cudnn_rnn`` and its backward pass), and AutocastRNN.cpp beside
it. The sizes of cuDNN's workspace and reserve are not published: the rule here agrees within 0.8 % with the peaks of
four trainings of bidirectional LSTMs. For GRU and plain RNN it was never measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn
from torch._ops import OpOverload
from torch.autograd.function import FunctionCtx

from ._calls import Args
from .event_log import EventLog

aten = torch.ops.aten

_LOW = (torch.float16, torch.bfloat16)
_CHANNELS_OF_TENSOR_CORES = 8
_TABLE = 16384
_GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
_FIXED_WORKSPACE = 64 << 20
_ROWS_OF_A_LAYER = 128
_DROPOUT_STATE = 960 << 10  # cudnnDropoutGetStatesSize on a T4; kept to the end of the process
_NAME = "aten._cudnn_rnn.default"
States: TypeAlias = "Tensor | Sequence[Tensor]"  # of an LSTM two, hidden and cell
_BACKWARD_NAME = "aten._cudnn_rnn_backward.default"


class _Convolution(NamedTuple):
    """The arguments of ``aten::convolution``; the backward pass has them between the gradient and what it computes."""

    x: Tensor
    weight: Tensor
    bias: Any
    stride: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]
    transposed: bool
    out_padding: Sequence[int]
    groups: int

    def by_cudnn(self) -> bool:
        """Whether cuDNN runs it, rather than torch's own depthwise kernel."""
        depthwise = not self.transposed and self.groups > 1 and self.x.shape[1] == self.groups
        return not depthwise or _depthwise_by_cudnn(self.x, self.weight, self.stride, self.dilation)

    def workspace(self, result: Sequence[int]) -> int | None:
        """Bytes for copies of the three operands; None where cuDNN does not run."""
        if not self.by_cudnn():
            return None
        x, weight = self.x, self.weight
        channels = result[1] if self.transposed else x.shape[1]
        if x.dtype not in _LOW or channels < _CHANNELS_OF_TENSOR_CORES or _channels_last(x, weight):
            return 0
        return int(sum(prod(shape) * x.element_size() for shape in (x.shape, weight.shape, result)))

    def result(self) -> list[int]:
        """The shape of the result."""

        def at(values: Sequence[int], axis: int) -> int:
            return int(values[axis if len(values) > 1 else 0])

        x, weight, lengths = self.x, self.weight, list[int]()
        for axis, (n, taps) in enumerate(zip(x.shape[2:], weight.shape[2:], strict=True)):
            step, pad, reach = at(self.stride, axis), at(self.padding, axis), at(self.dilation, axis) * (taps - 1)
            if self.transposed:
                lengths.append((n - 1) * step - 2 * pad + reach + at(self.out_padding, axis) + 1)
            else:
                lengths.append((n + 2 * pad - reach - 1) // step + 1)
        return [x.shape[0], weight.shape[1] * self.groups if self.transposed else weight.shape[0], *lengths]


def workspaces(op: OpOverload, args: Args) -> list[int]:
    """Returns the bytes of the workspace after each result of a convolution or its backward pass; 0 for none."""
    if op is aten.convolution.default:
        call = _Convolution(*args[:9])
        needed = call.workspace(call.result())
        return [_TABLE if call.x.dtype is torch.float32 and needed is not None else needed or 0]
    needed = _Convolution(*args[1:10]).workspace(args[0].shape)
    return [needed or 0 for one in args[10][:2] if one]


def is_torchs_own(args: Args) -> bool:
    """Whether torch's own depthwise kernel runs a backward pass, rather than cuDNN."""
    return not _Convolution(*args[1:10]).by_cudnn()


def _channels_last(x: Tensor, weight: Tensor) -> bool:
    """Whether torch passes the operands with channels last: cudnn_conv_suggest_memory_format, ConvUtils.h."""
    if x.dim() != 4:
        return False
    last = torch.channels_last
    return any(t.is_contiguous(memory_format=last) and not t.is_contiguous() for t in (x, weight))


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


@dataclass(frozen=True)
class _Layers:
    """The sizes of recurrent layers. ``steps`` × ``batch`` are the rows, padding included."""

    gates: int
    layers: int
    directions: int
    hidden: int
    output: int  # of a direction
    elements: int  # of all weights
    steps: int
    batch: int
    batch_first: bool

    @property
    def rows(self) -> int:
        """The number of vectors that a layer reads."""
        return self.steps * self.batch

    def workspace(self, itemsize: int) -> int:
        """The bytes of a copy of the weights, a layer's gates twice, and a fixed part."""
        gates = self.rows * self.directions * self.hidden * self.gates
        return (self.elements + 2 * gates) * itemsize + _FIXED_WORKSPACE

    def reserve(self) -> int:
        """The elements saved for backward: gates and cell of each unit, the layers' outputs, and a fixed part."""
        saved = self.gates + 1 if self.gates > 1 else 1
        units = self.rows * (self.layers * saved + self.layers - 1) + _ROWS_OF_A_LAYER * self.layers
        return units * self.directions * self.hidden

    def in_steps(self, x: Tensor) -> Tensor:
        """The input or the result with its steps first, as cuDNN requires it."""
        return x.transpose(0, 1) if self.batch_first else x


def take_places(layer: nn.RNNBase, buffer: Tensor) -> None:
    """Move all weights of a layer into a buffer, one after the other: ``RNNBase.flatten_parameters``."""
    weights = list(layer.parameters(recurse=False))
    for weight, part in zip(weights, _parts(buffer, weights), strict=True):
        weight.data = part


def _parts(buffer: Tensor, like: Sequence[Tensor]) -> Iterator[Tensor]:
    start = 0
    for tensor in like:
        yield buffer[start : start + tensor.numel()].view(tensor.shape)
        start += tensor.numel()


class Recurrent:
    """Replaces ``aten::lstm``, ``aten::gru`` and ``aten::rnn_*``."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._has_dropout_state = False

    def register(self, library: torch.library.Library) -> None:
        """Register the functions in place of torch's."""
        for key in ("AutogradCPU", "CPU"):
            for kind in _GATES:
                library.impl(f"{kind}.input", partial(self._padded, kind), key)
                library.impl(f"{kind}.data", partial(self._packed, kind), key)

    def _padded(self, kind: str, x: Tensor, states: States, weights: list[Tensor], *settings: Any) -> Any:
        batch, steps = x.shape[:2] if settings[-1] else (x.shape[1], x.shape[0])
        return self._run(kind, x, states, weights, settings, steps, batch)

    def _packed(
        self, kind: str, x: Tensor, batches: Tensor, states: States, weights: list[Tensor], *settings: Any
    ) -> Any:
        return self._run(kind, x, states, weights, (*settings, False), len(batches), int(batches[0]))

    def _run(
        self,
        kind: str,
        x: Tensor,
        states: States,
        weights: list[Tensor],
        settings: tuple[Any, ...],
        steps: int,
        batch: int,
    ) -> Any:
        _, layers, dropout, training, bidirectional, batch_first = settings
        gates, recurrent = _GATES[kind], weights[1]
        sizes = _Layers(
            gates, layers, 2 if bidirectional else 1, recurrent.shape[0] // gates, recurrent.shape[1],
            sum(w.numel() for w in weights), steps, batch, batch_first,
        )  # fmt: skip
        states = list(states) if kind == "lstm" else [states]
        if torch.is_autocast_enabled("cpu"):  # always to fp16, the weights in one buffer, to which no local may refer
            parts = _parts(torch.zeros(sizes.elements, dtype=torch.float16), weights)
            weights = [_InPlace.apply(w, part) for w, part in zip(weights, parts, strict=True)]
            del parts
            states, x = [s.to(torch.float16) for s in states], x.to(torch.float16)
        if training and dropout > 0 and not self._has_dropout_state:
            self._has_dropout_state = True
            self._log.passing(8, "aten._cudnn_init_dropout_state.default")
            self._log.staying(_DROPOUT_STATE, "aten._cudnn_init_dropout_state.default")
        return tuple(_OnCudnn.apply(self._log, sizes, training, len(states), x, *states, *weights))


class _InPlace(torch.autograd.Function):  # type: ignore[misc]
    """Casts a weight into memory that is allocated already."""

    @staticmethod
    def forward(ctx: FunctionCtx, weight: Tensor, part: Tensor) -> Tensor:
        ctx.dtype = weight.dtype
        return part

    @staticmethod
    def backward(ctx: FunctionCtx, grad: Tensor) -> Any:
        return grad.to(ctx.dtype), None


class _OnCudnn(torch.autograd.Function):  # type: ignore[misc]
    """What ``_cudnn_rnn`` and its backward pass allocate, in their order."""

    @staticmethod
    def forward(
        ctx: FunctionCtx, log: EventLog, sizes: _Layers, training: bool, count: int, x: Tensor, *others: Tensor
    ) -> Any:
        states, weights = others[:count], others[count:]
        rows = sizes.in_steps(x).contiguous()
        out = x.new_empty(*rows.shape[:-1], sizes.directions * sizes.output)
        results = [torch.empty_like(s) for s in states]
        reserve = None
        with log.during(sizes.workspace(x.element_size()), _NAME):
            if training:
                reserve = x.new_empty(sizes.reserve())
        ctx.log, ctx.sizes, ctx.count = log, sizes, count
        ctx.set_materialize_grads(False)
        out = sizes.in_steps(out)
        ctx.save_for_backward(x, out, reserve, *states, *weights)
        return (out, *results)

    @staticmethod
    def backward(ctx: FunctionCtx, grad: Tensor | None, *grads: Tensor | None) -> Any:
        x, out, reserve, *others = ctx.saved_tensors
        if reserve is None:
            raise RuntimeError("cudnn RNN backward can only be called in training mode")
        states, weights = others[: ctx.count], others[ctx.count :]
        workspace = ctx.sizes.workspace(x.element_size())
        if grad is None:
            grad = torch.zeros_like(out)
        state_grads = [torch.zeros_like(s) if g is None else g for g, s in zip(grads, states, strict=True)]
        rows, changes = (ctx.sizes.in_steps(t).contiguous() for t in (x, grad))
        input_grad = torch.empty_like(rows)
        of_states = [torch.empty_like(s) for s in states]
        with ctx.log.during(workspace, _BACKWARD_NAME):
            del changes
        del rows
        rows = ctx.sizes.in_steps(x).contiguous()
        buffer = x.new_zeros(ctx.sizes.elements)
        with ctx.log.during(workspace, _BACKWARD_NAME):
            del rows, state_grads
        return (None, None, None, None, ctx.sizes.in_steps(input_grad), *of_states, *_parts(buffer, weights))
