"""Recurrent layers as cuDNN runs them; the CPU would run them step by step.

aten/src/ATen/native/cudnn/RNN.cpp (``_cudnn_rnn`` and its backward pass), and AutocastRNN.cpp beside it. The sizes of
cuDNN's workspace and reserve are not published: the rule here agrees within 0.8 % with the peaks of four trainings of
bidirectional LSTMs. For GRU and plain RNN it was never measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx

from .event_log import EventLog

_GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
_FIXED_WORKSPACE = 64 << 20
_ROWS_OF_A_LAYER = 128
_DROPOUT_STATE = 960 << 10  # cudnnDropoutGetStatesSize on a T4; kept to the end of the process
_NAME = "aten._cudnn_rnn.default"
States: TypeAlias = "Tensor | Sequence[Tensor]"  # of an LSTM two, hidden and cell
_BACKWARD_NAME = "aten._cudnn_rnn_backward.default"


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
