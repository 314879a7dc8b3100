"""Shapes, strides and types of an operation's results, computed on the meta device and cached, as layers repeat."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

import torch
import torch._meta_registrations  # registers shape rules for operations that have no C++ one
from torch import Tensor
from torch._ops import OpOverload
from torch.utils import _pytree as pytree

from ._calls import Args, in_backward

aten = torch.ops.aten

# dtype, size, stride, storage offset in elements, bytes of the storage
Spec = tuple[torch.dtype, tuple[int, ...], tuple[int, ...], int, int]


def spec_of(tensor: Tensor) -> Spec:
    """The shape of a tensor and of its storage."""
    size, stride = tuple(tensor.size()), tuple(tensor.stride())
    return tensor.dtype, size, stride, tensor.storage_offset(), tensor.untyped_storage().nbytes()


def _contiguous(dtype: torch.dtype, *size: int) -> Spec:
    return spec_of(torch.empty(size, dtype=dtype, device="meta"))


def _like(tensor: Tensor, dtype: torch.dtype | None = None) -> Spec:
    """A contiguous tensor of the same shape."""
    return _contiguous(dtype or tensor.dtype, *tensor.shape)


def _ctc_loss(log_probs: Tensor, targets: Tensor, _: object, target_lengths: Iterable[int], *__: object) -> list[Spec]:
    """Losses (N) and log alpha (N, T, 2 * longest target + 1): aten/src/ATen/native/cuda/LossCTC.cu."""
    time, batch = log_probs.shape[:2]
    longest = max((int(n) for n in target_lengths), default=0)
    return [_contiguous(log_probs.dtype, *size) for size in ((batch,), (batch, time, 2 * longest + 1))]


def _ctc_loss_backward(_: Tensor, log_probs: Tensor, *__: object) -> list[Spec]:
    return [_like(log_probs)]


def selected(values: Tensor, mask: Tensor) -> tuple[int, int]:
    """The number of elements that ``masked_select`` selects, and of axes."""
    size = torch.broadcast_shapes(values.shape, mask.shape)
    return int(mask.expand(size).sum()), len(size)


def _masked_select(values: Tensor, mask: Tensor) -> list[Spec]:
    return [_contiguous(values.dtype, selected(values, mask)[0])]


def _softmax(x: Tensor, _: int, half_to_float: bool) -> list[Spec]:
    """Contiguous whatever the input's strides (aten/src/ATen/native/SoftMax.cpp); the meta device keeps the strides."""
    return [_like(x, torch.float32 if half_to_float else None)]


def _softmax_backward(grad: Tensor, output: Tensor, _: int, dtype: torch.dtype) -> list[Spec]:
    return [_like(grad, dtype)]


def _dropout_backward(grad: Tensor, *_: object) -> list[Spec]:
    """Contiguous below four dimensions: native_dropout_backward_cuda, aten/src/ATen/native/cuda/Dropout.cu."""
    return [_like(grad)]


def _layer_norm(x: Tensor, normalized: list[int], *_: object) -> list[Spec]:
    """Contiguous whatever the input's strides, as its gradient: aten/src/ATen/native/cuda/layer_norm_kernel.cu."""
    rows = x.shape[: x.dim() - len(normalized)]
    statistics = _contiguous(torch.promote_types(x.dtype, torch.float32), *rows, *(1 for _ in normalized))
    return [_like(x), statistics, statistics]


def _layer_norm_backward(_: object, x: Tensor, *others: Any) -> list[Spec | None]:
    weight, bias, wanted = others[-3:]
    return [_like(t) if is_wanted else None for t, is_wanted in zip((x, weight, bias), wanted, strict=True)]


def _efficient_attention(
    q: Tensor, k: Tensor, v: Tensor, _: object, sums: bool, *__: object, **___: object
) -> list[Spec]:
    """Output, log sums of rows in steps of 32, seed and offset: native/transformers/cuda/attention.cu of torch."""
    out, rows = _attention_output(q, v), -(-q.shape[2] // 32) * 32 if sums else 0
    seed = _contiguous(torch.int64)
    return [out, _contiguous(torch.float32, q.shape[0], q.shape[1], rows), seed, seed]


def _flash_attention(q: Tensor, k: Tensor, v: Tensor, *_: object, **__: object) -> list[Any]:
    """Output, log sums, no cumulated lengths, longest rows and columns, seed, offset and no mask: as above."""
    seed = _contiguous(torch.int64)
    sums, mask = _contiguous(torch.float32, *q.shape[:3]), _contiguous(q.dtype, 0)
    return [_attention_output(q, v), sums, None, None, q.shape[2], k.shape[2], seed, seed, mask]


def _attention_output(q: Tensor, v: Tensor) -> Spec:
    batch, heads, rows, _ = q.shape
    return spec_of(torch.empty(batch, rows, heads, v.shape[-1], dtype=q.dtype, device="meta").transpose(1, 2))


def _weight_norm_backward(_: object, v: Tensor, g: Tensor, *__: object) -> list[Spec]:
    """Gradients of direction and size: native/cuda/WeightNorm.cu of torch."""
    return [_like(v), _like(g)]


# Operations without a rule on the meta device, whose rule returns other strides than a GPU, or whose result depends on
# values that are real.
_OWN: dict[Any, Callable[..., list[Any]]] = {
    aten._ctc_loss.default: _ctc_loss,
    aten._ctc_loss.Tensor: _ctc_loss,
    aten._ctc_loss_backward.default: _ctc_loss_backward,
    aten._ctc_loss_backward.Tensor: _ctc_loss_backward,
    aten.masked_select.default: _masked_select,
    aten.native_layer_norm.default: _layer_norm,
    aten.native_layer_norm_backward.default: _layer_norm_backward,
    aten.native_dropout_backward.default: _dropout_backward,
    aten._softmax.default: _softmax,
    aten._log_softmax.default: _softmax,
    aten._softmax_backward_data.default: _softmax_backward,
    aten._log_softmax_backward_data.default: _softmax_backward,
}
# Operations for which only newer versions of torch have a rule on the meta device.
_OWN_WHERE_MISSING: dict[Any, Callable[..., list[Any]]] = {
    aten._scaled_dot_product_efficient_attention.default: _efficient_attention,
    aten._scaled_dot_product_flash_attention.default: _flash_attention,
    aten._weight_norm_interface_backward.default: _weight_norm_backward,
}
_OWN |= {
    op: rule for op, rule in _OWN_WHERE_MISSING.items() if not op.has_kernel_for_dispatch_key(torch._C.DispatchKey.Meta)
}
# Operations whose results depend on values, so that they cannot be cached by shape.
_MOST_RESULTS = 20_000  # cached, 450 for a trace, 1.3 kB each
_BY_VALUES = {aten._ctc_loss.default, aten._ctc_loss.Tensor, aten.masked_select.default}


class Shapes:
    """Results by operation and arguments, cached for all traces of the process: they have many shapes in common."""

    _results: ClassVar[dict[Any, tuple[Any, list[Any]]]] = {}

    def __init__(self) -> None:
        self._rows: dict[int, int] = {}  # of masks through which rows were written, by their addresses
        # The first product on the meta device imports torch._dynamo in torch 2.10, and the frames of that import keep
        # the locals of their callers alive until garbage is collected: here, nothing that is traced.
        torch.empty(1, 1, device="meta").addmm(*[torch.empty(1, 1, device="meta")] * 2)

    def results(self, op: OpOverload, args: Args, kwargs: dict[str, Any]) -> tuple[Any, list[Any]]:
        """The tree of results, None for one tensor, and its leaves: a ``Spec`` for a tensor, else the value itself."""
        if op is aten.index.Tensor:
            args = self._real_masks(args)
        key = (op, _key(args), _key(tuple(kwargs.items())) if kwargs else None, torch.get_default_dtype())
        result = self._results.get(key)
        if result is None:
            own = _OWN.get(op)
            result = _tree_of(own(*args, **kwargs)) if own is not None else _on_meta(op, args, kwargs)
            if op not in _BY_VALUES:
                if len(self._results) >= _MOST_RESULTS:
                    self._results.clear()
                self._results[key] = result
        return result

    def put(self, indices: Sequence[Tensor | None], values: Tensor) -> None:
        """Note the masks through which as many rows were written as are set: their gradient is as large."""
        for index in indices:
            if index is not None and index.dtype is torch.bool and values.dim() > 1:
                count = int(index.sum())
                if count == values.shape[0]:
                    self._rows[index.data_ptr()] = count

    def _real_masks(self, args: Args) -> tuple[Any, ...]:
        """Converts boolean indices to integer ones, as the meta device cannot count.

        In backward, where nothing else depends on the number, a mask counts as full unless rows were written through
        it. SpecAugment's masks are random, and sizes without a formula would spoil every answer; the gradient of masked
        frames is a temporary, and at most twice as large for it.
        """
        indices: list[Any] = []
        for index in args[1]:
            if index is None or index.dtype is not torch.bool:
                indices.append(index)
            else:
                full = in_backward() and self._rows.get(index.data_ptr()) != int(index.sum())
                indices += (torch.ones_like(index) if full else index).nonzero(as_tuple=True)
        return (args[0], indices, *args[2:])


def _tree_of(specs: list[Any]) -> tuple[Any, list[Any]]:
    return None if len(specs) == 1 else pytree.tree_structure((0,) * len(specs)), specs


def _key(values: Iterable[object]) -> tuple[Any, ...]:
    key: list[Any] = []
    for value in values:
        if isinstance(value, Tensor):
            key.append((value.dtype, value.size(), value.stride()))
        else:
            key.append(_key(value) if isinstance(value, list | tuple) else value)
    return tuple(key)


def _on_meta(op: OpOverload, args: Args, kwargs: dict[str, Any]) -> tuple[Any, list[Any]]:
    def to_meta(value: object) -> object:
        if isinstance(value, Tensor):
            return torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device="meta")
        return torch.device("meta") if isinstance(value, torch.device) else value

    out = op(*pytree.tree_map(to_meta, args), **pytree.tree_map(to_meta, kwargs))
    leaves, tree = pytree.tree_flatten(out)
    specs = [spec_of(leaf) if isinstance(leaf, Tensor) else leaf for leaf in leaves]
    return None if isinstance(out, Tensor) else tree, specs


_CONVOLUTION = ("kernel", "stride", "padding", "dilation")


class Lengths:
    """The input's length, and the lengths that convolutions over time derive from it or from one another."""

    def __init__(self) -> None:
        self.rungs: list[dict[str, Any]] = [{"name": "input"}]
        self._convolutions: dict[tuple[int, ...], None] = {}  # in order: length before, then _CONVOLUTION

    def add_convolution(
        self, weight: Tensor, source: Tensor, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int]
    ) -> None:
        """Note a convolution; time is the first of its spatial axes."""
        if source.dim() > 2:
            pad, spread = (padding[0] if padding else 0), (dilation[0] if dilation else 1)
            self._convolutions[(source.shape[2], weight.shape[2], stride[0], pad, spread)] = None

    def settle(self, length: int | None) -> None:
        """Add the lengths that the convolutions since the last call made of an input of this length."""
        convolutions, self._convolutions = self._convolutions, {}
        rung_of = {} if length is None else {length: 0}
        for before, kernel, stride, padding, dilation in convolutions:
            after = (before + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
            if before in rung_of and after not in rung_of:
                settings = zip(_CONVOLUTION, (kernel, stride, padding, dilation), strict=True)
                rung_of[after] = self._rung({"of": rung_of[before], **dict(settings)})

    def _rung(self, made: dict[str, int]) -> int:
        for number, rung in enumerate(self.rungs):
            if rung.items() >= made.items():
                return number
        self.rungs.append({"name": f"length{len(self.rungs)}", **made})
        return len(self.rungs) - 1
