"""Tensors without memory: they have addresses and can be viewed and differentiated, but hold no values.

The arena is one anonymous mapping that the kernel backs with nothing until a page is written. Tensors made here point
into it, so torch sees ordinary CPU tensors (autograd, autocast, hooks and views work as always), and no kernel is ever
run on them. Reading one by mistake returns zeros; regions may overlap, as nothing is written.
"""

from __future__ import annotations

import copy
import functools
import mmap
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes

from .._core.training_session import override
from ._calls import Kwargs
from ._quantized import imagine_weights
from .event_log import EventLog, TraceError

SMALL = 64  # elements; a tensor up to this size stays real
_SIZE = 1 << 40
_NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)
_PAGE = 4096


class Arena:
    """A terabyte of addresses, mapped until the last tensor made by ``tensor`` is gone."""

    def __init__(self) -> None:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE
        self._map = mmap.mmap(-1, _SIZE, flags=flags)
        self._start = torch.frombuffer(self._map, dtype=torch.uint8, count=1).data_ptr()
        self._next = 0

    def holds(self, *tensors: torch.Tensor) -> bool:
        """Whether the values of any of these tensors are imaginary."""
        start = self._start
        return bool([t for t in tensors if 0 <= t.data_ptr() - start < _SIZE])

    def tensor(
        self, dtype: torch.dtype, size: Sequence[int], stride: Sequence[int], offset: int, nbytes: int
    ) -> torch.Tensor:
        """A tensor over a storage of ``nbytes`` of its own; ``offset`` in elements, as in ``Tensor.as_strided``."""
        if nbytes > _SIZE:
            raise MemoryError(f"a tensor of {nbytes} bytes, {tuple(size)} of {dtype}, is larger than a terabyte")
        if self._next + nbytes > _SIZE:
            self._next = 0
        flat = torch.frombuffer(self._map, dtype=dtype, count=-(-nbytes // dtype.itemsize), offset=self._next)
        self._next += -(-nbytes // _PAGE) * _PAGE
        return flat.set_(flat.untyped_storage(), offset, size, stride)

    def dense(self, like: torch.Tensor, memory_format: torch.memory_format = torch.preserve_format) -> torch.Tensor:
        """The tensor that a device makes of ``like``: a slice of something larger becomes a tensor of its own."""
        stride = torch.empty_like(like, device="meta", memory_format=memory_format).stride()
        return self.tensor(like.dtype, like.size(), stride, 0, like.numel() * like.element_size())


def imaginary_copy(model: nn.Module, arena: Arena) -> nn.Module:
    """The same modules, hooks and sharing, with tensors that hold no values. Small buffers and integers keep theirs.

    A compiled model is copied as the eager module that it wraps.
    """
    model = getattr(model, "_orig_mod", model)
    memo: dict[int, Any] = {}
    imagine_weights(model, arena.dense, memo)
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
        if function is torch.Tensor.cuda:
            return args[0]
        if function is torch.nn.functional.cross_entropy and torch.is_autocast_enabled("cpu"):
            return _cross_entropy(*args, **(kwargs or {}))
        if kwargs:
            kwargs = {name: _rewritten(value) for name, value in kwargs.items()}
        if [a for a in args if isinstance(a, _NAMES)]:  # attribute accesses come here, too, and most have none
            args = list(map(_rewritten, args))
        return function(*args, **kwargs) if kwargs else function(*args)


def _cross_entropy(logits: torch.Tensor, target: torch.Tensor, *args: object, **kwargs: Any) -> torch.Tensor:
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


@contextmanager
def saved_on_host(log: EventLog, arena: Arena) -> Iterator[None]:
    """Makes ``save_on_cpu``, by which checkpoints are offloaded, copy tensors to the host and back, as on a GPU.

    For the CPU tensors of a trace torch's own would copy nothing.
    """

    def copied(tensor: torch.Tensor) -> torch.Tensor:
        with _disable_current_modes():
            if arena.holds(tensor):
                return arena.dense(tensor, torch.contiguous_format)
            return tensor.detach().clone(memory_format=torch.contiguous_format)

    def init(self: save_on_cpu, pin_memory: bool = False, device_type: str = "cuda") -> None:
        def pack(tensor: torch.Tensor) -> torch.Tensor:
            if not tensor.is_contiguous():  # put in order on the device first: aten/src/ATen/native/cuda/Copy.cu
                size = tensor.numel() * tensor.element_size()
                with log.during(size, "aten.clone.default"):
                    log.copied(size, tensor)
            log.transferred(tensor, "aten.copy_.default", "to_pinned" if pin_memory else "host")
            return copied(tensor)

        def unpack(packed: torch.Tensor) -> torch.Tensor:
            tensor = copied(packed)
            log.birth(tensor, "aten._to_copy.default")
            log.transferred(tensor, "aten._to_copy.default", "host")
            return tensor

        saved_tensors_hooks.__init__(self, pack, unpack)

    with ExitStack() as stack:
        stack.callback(override(save_on_cpu, "__init__", init))
        yield
