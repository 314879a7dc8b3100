"""The dispatch mode that replaces torch's kernels while a step is traced.

Large floating-point tensors are imaginary (see ``_arena``): operations on them compute shapes only. Integers, booleans
and small floats that do not come from one stay real, so that control flow over lengths, masks and scalars takes the
branch that it will take.

A tensor that is used twice gets two gradients. The engine adds one into the other when it alone holds that one, and
makes a third tensor only otherwise (can_accumulate_inplace in torch/csrc/autograd/input_buffer.cpp). A dispatch mode
makes it always take the second way, with a tensor and its fragmentation that a real run does not have.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from ._arena import SMALL, Arena
from ._calls import Args, Kwargs
from ._convolution_workspaces import is_torchs_own
from ._kernels import EFFICIENT_SEEDS_ON_DEVICE, FLASH_SEEDS_ON_DEVICE
from ._modules import in_backward
from ._shapes import Lengths, Shapes, spec_of
from ._workspaces import PRODUCTS, Workspaces, in_rows, needs_workspaces
from .event_log import EventLog
from .trace_file import TraceError

ADD = torch.ops.aten.add.Tensor
# What autograd calls where no mode watches: the gradient of an index is written into its zeros. ``index_backward`` and
# ``gather_backward`` in torch/csrc/autograd/FunctionsManual.cpp make a further tensor only for tensor subclasses, for
# which they take everything under a mode.
WRITTEN = {
    torch.ops.aten.index_put.default: torch.ops.aten.index_put_.default,
    torch.ops.aten.scatter_add.default: torch.ops.aten.scatter_add_.default,
}
_storage_owners: Any = getattr(torch._C, "_storage_Use_Count", None)
_Owners = tuple[int, int, int]


def _owners(args: Args) -> _Owners:
    """The reference counts of the first tensor, its storage and its Python object, within a dispatch mode."""
    tensor = args[0]
    return tensor._use_count(), _storage_owners(tensor.untyped_storage()._cdata), sys.getrefcount(tensor)


class DirectMode(TorchDispatchMode):  # type: ignore[misc]
    """Called by torch without the switch of torch.compile before each operation."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


class _Watch(DirectMode):
    def __init__(self) -> None:
        super().__init__()
        self.counts: list[_Owners] = []

    def __torch_dispatch__(self, op: OpOverload, types: object, args: Args = (), kwargs: Kwargs | None = None) -> Any:
        if op is ADD and in_backward():
            self.counts.append(_owners(args))
        return op(*args, **(kwargs or {}))


def _engine_alone() -> _Owners | None:
    """The counts when only the engine refers to a gradient; None where this torch does not expose them."""
    if _storage_owners is None or not hasattr(Tensor, "_use_count"):
        return None
    x = torch.ones(1, requires_grad=True)
    with torch.enable_grad(), _Watch() as watch:
        twice = x * 2
        (twice * 3 + twice * 4).backward()
    return watch.counts[0] if watch.counts else None


class Accumulation:
    """Whether the engine would add the second gradient into the first: only when nothing else refers to the first.

    The gradient of a transposed weight, a view, never qualifies. A backward formula that adds two tensors of its own
    looks the same, and is rare.
    """

    def __init__(self) -> None:
        self._alone = _engine_alone()

    def in_place(self, args: Args, kwargs: dict[str, Any]) -> bool:
        """For the arguments of an addition; call it directly in ``__torch_dispatch__``, whose frames count."""
        if self._alone is None or kwargs or not in_backward() or torch.is_grad_enabled():
            return False
        if not all(isinstance(a, Tensor) for a in args) or args[0].size() != args[1].size():
            return False
        return _owners(args) == self._alone and _dense(args[0])


def _dense(tensor: Tensor) -> bool:
    """Whether the elements fill the memory between the first and the last, each once, in some order of axes."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.size(), strict=True)):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


aten = torch.ops.aten


class _Kind(Enum):
    VIEW = 0  # shares its input's storage, or reads it
    WRITE = 1  # returns what it wrote to
    NEW = 2


# Views whose schema does not declare it, and operations on the storage itself.
_VIEWS = {aten._unsafe_view.default, aten._reshape_alias.default, aten.set_.source_Storage_storage_offset}
_READ = aten._local_scalar_dense.default
# There is no CPU kernel for these, so their results are imaginary, however small.
_CUDA_ONLY = {
    aten._scaled_dot_product_flash_attention.default,
    aten._scaled_dot_product_flash_attention_backward.default,
    aten._scaled_dot_product_efficient_attention.default,
    aten._scaled_dot_product_efficient_attention_backward.default,
}


@dataclass(frozen=True, slots=True)
class _Operation:
    """Everything about an operation in one look-up: its Python hash costs more than a view does."""

    op: OpOverload
    name: str
    kind: _Kind
    written: (
        OpOverload | None
    )  # what autograd calls instead where no mode watches, in a backward pass; None for the same
    workspaces: bool
    product: bool
    reordered: bool

    @classmethod
    def of(cls, op: OpOverload) -> _Operation:
        return cls(
            op, str(op), _kind(op), WRITTEN.get(op), needs_workspaces(op), op in PRODUCTS, op in _IN_ANOTHER_ORDER
        )


def _kind(op: OpOverload) -> _Kind:
    if op in _VIEWS or op is _READ or op.is_view:
        return _Kind.VIEW
    returns = op._schema.returns
    written = [r for r in returns if r.alias_info is not None and r.alias_info.is_write]
    return _Kind.WRITE if len(written) == len(returns) else _Kind.NEW


_IN_ANOTHER_ORDER = {
    aten.native_dropout.default,
    aten._scaled_dot_product_efficient_attention.default,
    aten._scaled_dot_product_flash_attention.default,
    aten.convolution_backward.default,
}


def in_order_of_birth(op: OpOverload, args: Args, results: list[Tensor]) -> list[Tensor]:
    """Returns the results that lie on the device, in the order in which a kernel allocates them.

    A dropout's mask comes before its result: dropout_cuda in aten/src/ATen/native/cuda/Dropout.cu. The seed and offset
    of attention's dropout stay on the host; without dropout newer versions make them on the device, and first. The
    weight's gradient of a depthwise convolution comes before its input's: conv_depthwise2d_backward_cuda.
    """
    if op is aten.native_dropout.default:
        return results[::-1]
    if op is aten._scaled_dot_product_efficient_attention.default:
        on_device = EFFICIENT_SEEDS_ON_DEVICE and not (len(args) > 5 and args[5])
        return results[2:] + results[:2] if on_device else results[:2]
    if op is aten._scaled_dot_product_flash_attention.default and not FLASH_SEEDS_ON_DEVICE:
        return results[:2]
    if op is aten.convolution_backward.default and all(args[10][:2]) and is_torchs_own(args):
        return [results[1], results[0], *results[2:]]
    return results


class DeviceMode(DirectMode):
    """Simulates the GPU. ``inside()`` returns whether new tensors currently belong to the device."""

    def __init__(
        self, log: EventLog, workspaces: Workspaces, inside: Callable[[], bool], where: Callable[[], tuple[str, str]]
    ) -> None:
        super().__init__()
        self.arena = Arena()
        self.lengths = Lengths()
        self._log = log
        self._shapes = Shapes()
        self._workspaces = workspaces
        self._inside = inside
        self._where = where
        self._operations: dict[Any, _Operation] = {}
        self._sums = Accumulation()

    def __torch_dispatch__(self, op: OpOverload, types: object, args: Args = (), kwargs: Kwargs | None = None) -> Any:
        kwargs = kwargs or {}
        if op is ADD and self._sums.in_place(args, kwargs):
            self._log.call(op, str(op), args, list(args[:2]), [args[0]])
            gradient: Tensor = args[0]
            return gradient if self.arena.holds(*args) else gradient.add_(args[1])
        operation = self._operations.get(op) or self._operation(op)
        if operation.written is not None and in_backward():
            operation = self._operation(operation.written)
        op, kind, name = operation.op, operation.kind, operation.name
        if kind is _Kind.VIEW:
            return op(*args, **kwargs)
        tensors = _tensors(args, kwargs)
        fake, unwatched = self.arena.holds(*tensors), self._log.unwatched(tensors)
        if kind is _Kind.WRITE:
            if op is aten.index_put_.default:
                self._shapes.put(args[1], args[2])
            written = _written(op, args, kwargs) if fake else op(*args, **kwargs)
            if len(unwatched) < len(tensors):
                self._log.call(op, name, args, tensors, _tensors((written,), None))
            return written
        if len(unwatched) == len(tensors) and not self._inside():
            return self._new(op, name, args, kwargs, fake, tensors)[0]
        for tensor in unwatched:
            if tensor.dim():
                self._log.birth(tensor, "to", "input")  # it was made on the host, and must be here by now
        if operation.workspaces:
            out, leaves = self._with_workspaces(op, name, args, kwargs, fake, tensors)
        else:
            out, leaves = self._new(op, name, args, kwargs, fake, tensors)
            for leaf in in_order_of_birth(op, args, leaves) if operation.reordered else leaves:
                self._log.birth(leaf, name)
        if operation.product:
            self._workspaces.product(op, name)
        self._log.call(op, name, args, tensors, leaves)
        return out

    def _operation(self, op: OpOverload) -> _Operation:
        return self._operations.setdefault(op, _Operation.of(op))

    def _with_workspaces(
        self, op: OpOverload, name: str, args: Args, kwargs: Kwargs, fake: bool, tensors: list[Tensor]
    ) -> Any:
        if op is aten.convolution.default and not args[6]:
            self.lengths.add_convolution(args[1], args[0], args[3], args[4], args[5])
        if op is aten.masked_select.default and self.arena.holds(args[1]):
            args = (args[0], torch.ones_like(args[1]))  # the places are unknown; all of them take the most memory
        with self._workspaces.of(op, name, args) as workspaces:
            out, leaves = self._new(op, name, self._as_copied(op, args), kwargs, fake, tensors)
            for number, leaf in enumerate(in_order_of_birth(op, args, leaves)):
                self._log.birth(leaf, name)
                workspaces.after_result(number)
        return out, leaves

    def _as_copied(self, op: OpOverload, args: Args) -> tuple[Any, ...]:
        """The arguments with the contiguous copy that a kernel works on, whose layout its result has."""
        if op is not aten.native_batch_norm_backward.default or in_rows(args[0]) or not self.arena.holds(args[0]):
            return args
        dtype, size, *_ = spec_of(args[0])
        like = torch.empty(size, dtype=dtype, device="meta")
        return (self.arena.tensor(dtype, size, like.stride(), 0, like.nbytes), *args[1:])

    def _new(self, op: OpOverload, name: str, args: Args, kwargs: Kwargs, fake: bool, tensors: list[Tensor]) -> Any:
        if fake or op in _CUDA_ONLY or self._imagines(op, args, kwargs, tensors):
            return self._imagined(op, name, args, kwargs)
        # By this draw speech models drop a whole layer: none is dropped, which takes the most memory.
        out = torch.ones(()) if op is aten.rand.default and args[0] == [] else op(*args, **kwargs)
        if isinstance(out, Tensor):  # as most are
            out = self.imagine(out)
            return out, [out]
        out = pytree.tree_map_only(Tensor, self.imagine, out)
        return out, [leaf for leaf in pytree.tree_leaves(out) if isinstance(leaf, Tensor)]

    def _imagines(self, op: OpOverload, args: Args, kwargs: Kwargs, tensors: list[Tensor]) -> bool:
        """Whether an operation without inputs would fill a large float tensor."""
        if tensors:
            return False
        _, leaves = self._specs(op, str(op), args, kwargs)
        return any(isinstance(leaf, tuple) and _is_large(leaf) for leaf in leaves)

    def _imagined(self, op: OpOverload, name: str, args: Args, kwargs: Kwargs) -> Any:
        tree, specs = self._specs(op, name, args, kwargs)
        made = [self._make(spec) for spec in specs]
        if tree is None:
            return made[0], made
        return pytree.tree_unflatten(made, tree), [leaf for leaf in made if isinstance(leaf, Tensor)]

    def _specs(self, op: OpOverload, name: str, args: Args, kwargs: Kwargs) -> tuple[Any, list[Any]]:
        try:
            return self._shapes.results(op, args, kwargs)
        except Exception as error:
            module = self._where()[1] or "the outermost module"
            reason = str(error).strip().split("\n")[0][:200]
            raise TraceError(
                f"{name} in {module} cannot be traced: {reason}",
                "its result depends on values that do not exist without a GPU, or it has no shape rule; "
                'use estimator="published", or trace the model without this part',
            ) from error

    def _make(self, spec: Any) -> Any:
        if not isinstance(spec, tuple):
            return spec
        dtype, size, stride, offset, nbytes = spec
        if nbytes > SMALL * dtype.itemsize:
            return self.arena.tensor(dtype, size, stride, offset, nbytes)
        # Its values are unknown. Zero keeps losses finite, and flags such as that of an overflow off.
        flat = torch.zeros(nbytes // dtype.itemsize, dtype=dtype)
        return flat.as_strided(size, stride, offset)

    def imagine(self, tensor: Tensor) -> Tensor:
        """The tensor itself, or an imaginary one of the same shape when it is a large float."""
        spec = spec_of(tensor)
        return self.arena.tensor(*spec) if _is_large(spec) and not self.arena.holds(tensor) else tensor


def _is_large(spec: Any) -> bool:
    dtype, nbytes = spec[0], spec[4]
    return bool((dtype.is_floating_point or dtype.is_complex) and nbytes > SMALL * dtype.itemsize)


def _tensors(args: Args, kwargs: Kwargs | None) -> list[Tensor]:
    tensors: list[Tensor] = []
    for value in (*args, *kwargs.values()) if kwargs else args:
        if isinstance(value, Tensor):
            tensors.append(value)
        elif isinstance(value, list | tuple):
            tensors.extend(v for v in value if isinstance(v, Tensor))
    return tensors


def _written(op: OpOverload, args: Args, kwargs: Kwargs) -> Any:
    """What an in-place or ``out=`` operation returns, without running it."""
    out = []
    schema = op._schema
    for returned in schema.returns:
        for place, argument in enumerate(schema.arguments):
            info = argument.alias_info
            if info is not None and info.is_write and info.before_set == returned.alias_info.before_set:
                out.append(args[place] if place < len(args) else kwargs[argument.name])
                break
    return out[0] if len(out) == 1 else tuple(out) if out else None
