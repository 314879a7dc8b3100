"""Runs a loop written for a GPU without one: every CUDA device that it names is the traced device."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes

from .._base.override import override
from ._arena import Arena
from ._log import EventLog

# The second name is that of older versions of torch.
_HEALTH_CHECKS = ("_accelerator_graph_capture_health_check", "_cuda_graph_capture_health_check")
_NAMES = (torch.device, str)  # that may name a device


class CudaIsHere(TorchFunctionMode):  # type: ignore[misc]
    """Redirects calls for a CUDA device to the CPU, where the recorder simulates the GPU."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is torch.Tensor.cuda:
            return args[0]
        if function is torch.nn.functional.cross_entropy and torch.is_autocast_enabled("cpu"):
            return _cross_entropy(*args, **(kwargs or {}))
        if kwargs:
            kwargs = {name: _rewritten(value) for name, value in kwargs.items()}
        if [a for a in args if isinstance(a, _NAMES)]:  # attribute accesses come here, too, and most have none
            args = map(_rewritten, args)
        return function(*args, **kwargs) if kwargs else function(*args)


def _cross_entropy(logits: torch.Tensor, target: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """Under CUDA's autocast only the negative log likelihood is in float32; the CPU's casts the logits already.

    Smoothed labels and label probabilities are left to the CPU's.
    """
    functional = torch.nn.functional
    if args or target.dtype.is_floating_point or kwargs.get("label_smoothing"):
        return functional.cross_entropy(logits, target, *args, **kwargs)
    kwargs = {name: value for name, value in kwargs.items() if name != "label_smoothing"}
    log_probabilities = functional.log_softmax(logits, 0 if logits.dim() == 1 else 1, dtype=logits.dtype)
    return functional.nll_loss(log_probabilities, target, **kwargs)


def _rewritten(value: Any) -> Any:
    if isinstance(value, torch.device):
        return torch.device("cpu") if value.type == "cuda" else value
    if isinstance(value, str) and (value == "cuda" or value.startswith("cuda:")):
        return "cpu"
    return value


def _on_cpu(init: Callable[..., None], dtype: torch.dtype | None) -> Callable[..., None]:
    """An ``__init__`` whose first argument, a device type, is "cpu" whenever it was "cuda"."""

    @functools.wraps(init)
    def redirected(self: Any, *args: Any, **kwargs: Any) -> None:
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

    def init(self: Any, pin_memory: bool = False, device_type: str = "cuda") -> None:
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
