"""Tensors without memory: they have addresses and can be viewed and differentiated, but hold no values.

The arena is one anonymous mapping that the kernel backs with nothing until a page is written. Tensors made here point
into it, so torch sees ordinary CPU tensors (autograd, autocast, hooks and views work as always), and no kernel is ever
run on them. Reading one by mistake returns zeros; regions may overlap, as nothing is written.

Weights of 8 and 4 bits have the memory that bitsandbytes' kernels take, by bitsandbytes/backends/cuda/ops.py (0.50).
Where values decide, the usual case is assumed: an input of 8 bits has no outliers, and 4 bits are always unpacked into
a whole weight, which small batches (at most 1536 rows of input) may do without.
"""

from __future__ import annotations

import copy
import functools
import mmap
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from .._core.output import kind_of
from .._core.training_session import override
from ._calls import Kwargs
from .event_log import EventLog, TraceError

SMALL = 64  # elements; a tensor up to this size stays real
_SIZE = 1 << 40
_NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)
_PAGE = 4096
_QUANTIZED = ("Int8Params", "Params4bit")
_PRODUCT = torch.ops.aten.mm.default


class Arena:
    """A terabyte of addresses, mapped until the last tensor made by ``tensor`` is gone."""

    def __init__(self) -> None:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE
        self._map = mmap.mmap(-1, _SIZE, flags=flags)
        self._start = torch.frombuffer(self._map, dtype=torch.uint8, count=1).data_ptr()
        self._next = 0

    def holds(self, *tensors: Tensor) -> bool:
        """Whether the values of any of these tensors are imaginary."""
        start = self._start
        return bool([t for t in tensors if 0 <= t.data_ptr() - start < _SIZE])

    def tensor(
        self, dtype: torch.dtype, size: Sequence[int], stride: Sequence[int], offset: int, nbytes: int
    ) -> Tensor:
        """A tensor over a storage of ``nbytes`` of its own; ``offset`` in elements, as in ``Tensor.as_strided``."""
        if nbytes > _SIZE:
            raise MemoryError(f"a tensor of {nbytes} bytes, {tuple(size)} of {dtype}, is larger than a terabyte")
        if self._next + nbytes > _SIZE:
            self._next = 0
        flat = torch.frombuffer(self._map, dtype=dtype, count=-(-nbytes // dtype.itemsize), offset=self._next)
        self._next += -(-nbytes // _PAGE) * _PAGE
        return flat.set_(flat.untyped_storage(), offset, size, stride)

    def dense(self, like: Tensor, memory_format: torch.memory_format = torch.preserve_format) -> Tensor:
        """The tensor that a device makes of ``like``: a slice of something larger becomes a tensor of its own."""
        stride = torch.empty_like(like, device="meta", memory_format=memory_format).stride()
        return self.tensor(like.dtype, like.size(), stride, 0, like.numel() * like.element_size())


def imaginary_copy(model: nn.Module, arena: Arena) -> nn.Module:
    """The same modules, hooks and sharing, with tensors that hold no values. Small buffers and integers keep theirs.

    A compiled model is copied as the eager module that it wraps.
    """
    model = getattr(model, "_orig_mod", model)
    memo: dict[int, Any] = {}
    _imagine_weights(model, arena.dense, memo)
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
            f"the model, {kind_of(model)}, cannot be copied: {error}",
            "pass a function without arguments that builds it instead: trace_training(lambda: MyModel(...), ...)",
        ) from error


def _stand_in(tensor: Tensor, arena: Arena) -> Tensor:
    data = tensor.detach()
    if data.layout is not torch.strided or type(data) not in (Tensor, nn.Parameter):
        raise TraceError(
            f"a parameter of type {type(data).__name__} ({data.layout}) cannot be traced",
            "trace the model before quantizing or sharding it",
        )
    large = (data.dtype.is_floating_point or isinstance(tensor, nn.Parameter)) and data.numel() > SMALL
    imagined = large or data.is_meta  # a tensor of the meta device has no values to keep
    data = arena.dense(data) if imagined else data.to("cpu", copy=True)
    if isinstance(tensor, nn.Parameter):
        return nn.Parameter(data, requires_grad=tensor.requires_grad)
    return data


# The second name is that of older versions of torch.
_HEALTH_CHECKS = ("_accelerator_graph_capture_health_check", "_cuda_graph_capture_health_check")
_NAMES = (torch.device, str)  # that may name a device


class CudaIsHere(TorchFunctionMode):  # type: ignore[misc]
    """Redirects calls for a CUDA device to the CPU, where the recorder simulates the GPU."""

    def __torch_function__(
        self, function: Callable[..., Any], types: object, args: Sequence[Any] = (), kwargs: Kwargs | None = None
    ) -> Any:
        if function is Tensor.cuda:
            return args[0]
        if function is torch.nn.functional.cross_entropy and torch.is_autocast_enabled("cpu"):
            return _cross_entropy(*args, **(kwargs or {}))
        if kwargs:
            kwargs = {name: _rewritten(value) for name, value in kwargs.items()}
        if [a for a in args if isinstance(a, _NAMES)]:  # attribute accesses come here, too, and most have none
            args = list(map(_rewritten, args))
        return function(*args, **kwargs) if kwargs else function(*args)


def _cross_entropy(logits: Tensor, target: Tensor, *args: object, **kwargs: Any) -> Tensor:
    """Under CUDA's autocast only the negative log likelihood is in float32; the CPU's casts the logits already.

    Smoothed labels and label probabilities are left to the CPU's.
    """
    functional = torch.nn.functional
    if args or target.dtype.is_floating_point or kwargs.get("label_smoothing"):
        return functional.cross_entropy(logits, target, *args, **kwargs)
    kwargs = {name: value for name, value in kwargs.items() if name != "label_smoothing"}
    log_probabilities = functional.log_softmax(logits, 0 if logits.dim() == 1 else 1, dtype=logits.dtype)
    return functional.nll_loss(log_probabilities, target, **kwargs)


def _rewritten(value: object) -> object:
    if isinstance(value, torch.device):
        return torch.device("cpu") if value.type == "cuda" else value
    if isinstance(value, str) and (value == "cuda" or value.startswith("cuda:")):
        return "cpu"
    return value


def _on_cpu(init: Callable[..., None], dtype: torch.dtype | None) -> Callable[..., None]:
    """An ``__init__`` whose first argument, a device type, is "cpu" whenever it was "cuda"."""

    @functools.wraps(init)
    def redirected(self: object, *args: object, **kwargs: object) -> None:
        device = args[0] if args else kwargs.get("device_type", kwargs.get("device", "cuda"))
        if device != "cuda":
            init(self, *args, **kwargs)
            return
        kwargs = {name: value for name, value in kwargs.items() if name not in ("device_type", "device")}
        if dtype is not None and len(args) < 2 and kwargs.get("dtype") is None:
            kwargs["dtype"] = dtype
        init(self, "cpu", *args[1:], **kwargs)

    return redirected


@contextmanager
def cuda_is_here() -> Iterator[None]:
    """Makes autocast and the gradient scaler for "cuda" work on the traced device; both would disable themselves."""
    with ExitStack() as stack:
        for cls, dtype in ((torch.amp.autocast, torch.float16), (torch.amp.GradScaler, None)):
            stack.callback(override(cls, "__init__", _on_cpu(cls.__init__, dtype)))
        # Optimizers check for graph capture, which starts CUDA: the allocator settings of the plan would come too late,
        # and the context takes some 300 MB.
        for name in vars(torch.optim.Optimizer).keys() & set(_HEALTH_CHECKS):
            stack.callback(override(torch.optim.Optimizer, name, lambda self: None))
        stack.enter_context(CudaIsHere())
        yield


def is_quantized(weight: Tensor) -> bool:
    """Whether bitsandbytes computes with the weight."""
    return type(weight).__name__ in _QUANTIZED


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


def _imagine_weights(model: nn.Module, imagined: Callable[[Tensor], Tensor], memo: dict[int, Any]) -> None:
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
