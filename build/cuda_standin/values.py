"""Right values for small results, where kernels that do nothing would leave what the memory held before.

Integers and booleans steer a training: masks, lengths, counts, ``.item()``, GradScaler's scale. After each call of
torch from Python, its small results are computed on the CPU, on tensors over the same memory, and written where the
kernel would have put them. Sizes and order of the device's allocations stay its own.

A function mode, not a dispatch mode: with an active dispatch mode autograd adds up gradients out of place, which
changes the peak.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from .values_rules import (
    ANSWERS,
    BY_VALUES,
    CONVERSIONS,
    MAX_ELEMENTS,
    MAX_FLOATS,
    RANDOM_INTEGERS,
    SIZED_BY_VALUES,
    is_in_place,
    is_left_alone,
)

_MASKS = (torch.bool, torch.uint8)


class HostValueError(RuntimeError):
    """A small result could not be computed on the CPU."""


def host_view(tensor: torch.Tensor) -> torch.Tensor:
    """A CPU tensor over the memory of a tensor of the stand-in's device."""
    if not tensor.is_cuda:
        return tensor.detach()
    storage = tensor.untyped_storage()
    whole = storage.nbytes() // tensor.element_size() * tensor.element_size()
    if not whole or not tensor.numel():
        return torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")
    memory = (ctypes.c_char * whole).from_address(storage.data_ptr())
    flat = torch.frombuffer(memory, dtype=tensor.dtype)
    return flat.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    found: list[torch.Tensor] = []
    _collect(value, found)
    return found


def _collect(value: Any, found: list[torch.Tensor]) -> None:
    if isinstance(value, torch.Tensor):
        found.append(value)
    elif isinstance(value, (list, tuple)):
        for part in value:
            _collect(part, found)
    elif isinstance(value, dict):
        for part in value.values():
            _collect(part, found)


def _on_host(value: Any) -> Any:
    """The same arguments with views and the CPU in place of the device's tensors and the device."""
    if isinstance(value, torch.Tensor):
        return host_view(value)
    if isinstance(value, torch.device) or (isinstance(value, str) and value.split(":")[0] == "cuda"):
        return "cpu"
    if type(value) in (list, tuple):
        return type(value)(_on_host(part) for part in value)
    if isinstance(value, dict):
        return {key: _on_host(part) for key, part in value.items()}
    return value


def _widened(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def _is_mask(index: Any) -> bool:
    return isinstance(index, torch.Tensor) and index.is_cuda and index.dtype in _MASKS and index.dim() > 0


def _parts(index: Any) -> tuple[Any, ...]:
    return index if isinstance(index, tuple) else (index,)


def _fills(name: str, args: tuple[Any, ...]) -> bool:
    """Whether one number goes where one mask says, for which the device needs no positions: masked_fill_."""
    return name == "__setitem__" and isinstance(args[2], (int, float)) and len(_parts(args[1])) == 1


def _without_masks(index: Any) -> tuple[Any, ...]:
    """An index whose masks are the positions that they select, as the device finds them itself before it indexes."""
    positions: list[Any] = []
    for part in _parts(index):
        if _is_mask(part):
            positions.extend(p.contiguous().to(part.device) for p in host_view(part).nonzero(as_tuple=True))
        else:
            positions.append(part)
    return tuple(positions)


class Values(TorchFunctionMode):  # type: ignore[misc]  # torch's types are not read
    """Computes small results on the CPU: ``with Values(): train()``."""

    def __init__(self) -> None:
        super().__init__()
        self._random_state = torch.Generator().manual_seed(0).get_state()

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if func is torch.Tensor.backward:
            with self:  # also for checkpoints, which run forward again inside
                return _backward(*args, **kwargs)
        if is_left_alone(name):
            return func(*args, **kwargs)
        if name == "masked_scatter" and len(args) == 3 and args[0].is_cuda and torch.is_grad_enabled():
            return _Scattered.apply(*args, self)
        if name in BY_VALUES:
            with _naming(name):
                handled, args, kwargs, result = self._by_values(func, name, args, kwargs)
            if handled:
                return result
        result = func(*args, **kwargs)
        self._write(func, name, args, kwargs, result)
        return result

    def _by_values(
        self, func: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[bool, tuple[Any, ...], dict[str, Any], Any]:
        """Whether the values decided the result, and the arguments to go on with where they did not."""
        first = args[0] if args else kwargs.get("input")
        if not isinstance(first, torch.Tensor) or not any(t.is_cuda for t in _tensors((args, kwargs))):
            return False, args, kwargs, None
        if name in ANSWERS:
            return True, args, kwargs, func(*_on_host(args), **_on_host(kwargs))
        if name == "masked_select":
            return True, args, kwargs, _Selected.apply(first, args[1] if len(args) > 1 else kwargs["mask"], self)
        if name in ("__getitem__", "__setitem__") and any(map(_is_mask, _parts(args[1]))) and not _fills(name, args):
            args = (args[0], _without_masks(args[1]), *args[2:])
            result = func(*args)
            self._write(func, name, args, {}, result)
            return True, args, kwargs, result
        if name in SIZED_BY_VALUES or (name == "where" and len(args) + len(kwargs) == 1):
            with torch.no_grad():
                found = func(*_on_host(args), **_on_host(kwargs))
            placed = [t.to(first.device) for t in _tensors(found)]
            return True, args, kwargs, placed[0] if isinstance(found, torch.Tensor) else tuple(placed)
        if name == "repeat_interleave" and len(args) > 1 and isinstance(args[1], torch.Tensor):
            kwargs = {"output_size": int(host_view(args[1]).sum()), **kwargs}
        return False, args, kwargs, None

    def _write(
        self, func: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> None:
        in_place = is_in_place(name) or kwargs.get("out") is not None
        outputs = _tensors(args[0] if in_place and args and "out" not in kwargs else result)
        most = _most(outputs)
        if not most:  # what most calls end with
            return
        inputs = _tensors((args, kwargs))
        if any(map(_has_no_memory, (*inputs, *outputs))):
            return
        if not _is_small(most, inputs, outputs) or (not in_place and _are_views(inputs, outputs)):
            return
        with _naming(name), torch.no_grad():
            self._compute(func, name, args, kwargs, outputs, in_place)

    def _compute(
        self,
        func: Callable[..., Any],
        name: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        outputs: list[torch.Tensor],
        in_place: bool,
    ) -> None:
        if in_place:
            with self._random(name):
                func(*_on_host(args), **_on_host(_without_generator(kwargs)))
            return
        if name in CONVERSIONS:
            host_view(outputs[0]).copy_(host_view(args[0]))
            return
        on_host = _on_host(_without_generator(kwargs))
        if name == "histc":  # of floats alone on the CPU
            args = (args[0].double(), *args[1:])
        if not any(t.is_cuda for t in _tensors((args, kwargs))):
            on_host["device"] = "cpu"
        inputs = _on_host(args)
        if torch.is_autocast_enabled("cuda"):  # products take unequal types there
            inputs, on_host = (pytree.tree_map_only(torch.Tensor, _widened, each) for each in (inputs, on_host))
        with self._random(name):
            computed = _tensors(func(*inputs, **on_host))
        for output, value in zip(outputs, computed, strict=True):
            host_view(output).copy_(value)

    @contextlib.contextmanager
    def _random(self, name: str) -> Iterator[None]:
        if name not in RANDOM_INTEGERS:
            yield
            return
        before = torch.random.get_rng_state()
        torch.random.set_rng_state(self._random_state)
        try:
            yield
        finally:
            self._random_state = torch.random.get_rng_state()
            torch.random.set_rng_state(before)


def _backward(
    tensor: torch.Tensor,
    gradient: torch.Tensor | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Any = None,
) -> None:
    """What ``Tensor.backward`` does, which would ask the mode again."""
    torch.autograd.backward(tensor, gradient, retain_graph, create_graph, inputs=inputs)


class _Selected(torch.autograd.Function):  # type: ignore[misc]
    """``masked_select`` as CUDA has it: it indexes by positions, and its backward pass scatters by the mask."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, mask: torch.Tensor, values: Values) -> Any:
        ctx.save_for_backward(tensor, mask)
        with values:
            expanded, where = torch.broadcast_tensors(tensor, mask)
            return expanded[where]

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        tensor, mask = ctx.saved_tensors
        result = torch.zeros_like(tensor.expand(torch.broadcast_shapes(tensor.shape, mask.shape)))
        return result.masked_scatter_(mask, gradient).sum_to_size(tensor.shape), None, None


class _Scattered(torch.autograd.Function):  # type: ignore[misc]
    """``masked_scatter`` as torch has it, but that its backward pass counts by the mask's values what it chooses."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, mask: torch.Tensor, source: torch.Tensor, values: Values) -> Any:
        ctx.save_for_backward(mask)
        ctx.shape, ctx.values = source.shape, values
        return tensor.masked_scatter(mask, source)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        (mask,) = ctx.saved_tensors
        kept, chosen = None, None
        with ctx.values:
            if ctx.needs_input_grad[0]:
                kept = gradient.masked_fill(mask, 0)
            if ctx.needs_input_grad[2]:
                chosen = gradient.masked_select(mask)
                missing = ctx.shape.numel() - chosen.numel()
                if missing:
                    chosen = torch.cat([chosen, chosen.new_zeros(missing)])
                chosen = chosen.view(ctx.shape)
        return kept, None, chosen, None


def _without_generator(kwargs: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in kwargs.items() if key not in ("generator", "pin_memory")}


def _most(outputs: list[torch.Tensor]) -> int:
    """How many elements may be read for these results: 0 where they are none, or themselves too large."""
    written = sum(t.numel() for t in outputs)
    integers = not any(t.is_floating_point() or t.is_complex() for t in outputs)
    most = MAX_ELEMENTS if integers else MAX_FLOATS
    return most if 0 < written <= most else 0


def _is_small(most: int, inputs: list[torch.Tensor], outputs: list[torch.Tensor]) -> bool:
    """Whether a result of the device is worth computing: few integers, or few floats from few inputs."""
    return any(t.is_cuda for t in (*inputs, *outputs)) and sum(t.numel() for t in inputs) <= most


def _has_no_memory(tensor: torch.Tensor) -> bool:
    """Whether it stands for many inside ``torch.vmap``, by which transformers makes masks: no path depends on those."""
    return bool(torch._C._functorch.is_functorch_wrapped_tensor(tensor))


def _are_views(inputs: list[torch.Tensor], outputs: list[torch.Tensor]) -> bool:
    storages: set[int] = {t.untyped_storage().data_ptr() for t in inputs if t.is_cuda}
    return storages.issuperset(int(t.untyped_storage().data_ptr()) for t in outputs)


@contextlib.contextmanager
def _naming(name: str) -> Iterator[None]:
    try:
        yield
    except (torch.OutOfMemoryError, HostValueError):
        raise
    except Exception as error:
        raise HostValueError(f"computing the result of torch's {name} on the CPU: {error}") from error
