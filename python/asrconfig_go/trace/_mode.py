"""The dispatch mode that replaces torch's kernels while a step is traced.

``MemoryRecorder`` enters a ``DeviceMode`` around a training step. The mode sees every operation, decides which of its
results would be allocated on the GPU, and writes their births to the event log; no kernel runs on large tensors.

Large floating-point tensors are *imaginary* (see ``_arena``): they have an address and a shape, but neither memory nor
values, and operations on them compute shapes only. Integers, booleans, and small floats that are not computed from an
imaginary tensor stay real, so that control flow over lengths, masks and scalars takes the branch of a real run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils import _pytree as pytree

from ._arena import SMALL, Arena
from ._autograd import ADD, Accumulation, DirectMode
from ._calls import Args, Kwargs, in_backward
from ._cudnn import is_torchs_own
from ._kernels import EFFICIENT_SEEDS_ON_DEVICE, FLASH_SEEDS_ON_DEVICE
from ._shapes import Lengths, Shapes, spec_of
from ._workspaces import PRODUCTS, Workspaces, in_rows, needs_workspaces
from .event_log import EventLog, TraceError

aten = torch.ops.aten

# What autograd calls in a backward pass without a mode: the gradient of an index is written into its zeros. Under a
# mode, ``index_backward`` and ``gather_backward`` in torch/csrc/autograd/FunctionsManual.cpp allocate a further tensor,
# as they do for tensor subclasses.
IN_PLACE_IN_BACKWARD = {
    aten.index_put.default: aten.index_put_.default,
    aten.scatter_add.default: aten.scatter_add_.default,
}
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
# Kernels that allocate their results in another order than they return them: see ``in_allocation_order``.
_REORDERED = {
    aten.native_dropout.default,
    aten._scaled_dot_product_efficient_attention.default,
    aten._scaled_dot_product_flash_attention.default,
    aten.convolution_backward.default,
}
# They read the shape of their input, not its values.
_LIKE = {aten.zeros_like.default, aten.ones_like.default, aten.full_like.default, aten.empty_like.default}
_REASON_LENGTH = 200  # characters of torch's message that an error quotes


class _Kind(Enum):
    VIEW = 0  # shares its input's storage, or reads it
    WRITE = 1  # writes to its inputs, and returns them
    NEW = 2  # allocates its results


@dataclass(frozen=True, slots=True)
class _Operation:
    """What the mode asks of an operation, looked up at once: hashing an operation costs more than computing a view."""

    op: OpOverload
    name: str
    kind: _Kind
    in_backward: OpOverload | None  # what autograd calls instead in a backward pass without a mode
    has_workspaces: bool  # it may allocate more than its results
    is_product: bool  # of matrices, with a workspace of cuBLAS
    is_reordered: bool  # it allocates its results in another order than it returns them

    @classmethod
    def of(cls, op: OpOverload) -> _Operation:
        in_backward = IN_PLACE_IN_BACKWARD.get(op)
        return cls(op, str(op), _kind(op), in_backward, needs_workspaces(op), op in PRODUCTS, op in _REORDERED)


def _kind(op: OpOverload) -> _Kind:
    if op in _VIEWS or op is _READ or op.is_view:
        return _Kind.VIEW
    returns = op._schema.returns
    written = [r for r in returns if r.alias_info is not None and r.alias_info.is_write]
    return _Kind.WRITE if len(written) == len(returns) else _Kind.NEW


def in_allocation_order(op: OpOverload, args: Args, results: list[Tensor]) -> list[Tensor]:
    """Return the results that lie on the device, in the order in which a kernel allocates them.

    - Dropout allocates its mask before its result: dropout_cuda in aten/src/ATen/native/cuda/Dropout.cu.
    - The seed and offset of attention's dropout are on the host. Without dropout, newer versions of torch allocate them
      on the device, before the results.
    - A depthwise convolution allocates its weight's gradient before its input's: conv_depthwise2d_backward_cuda.
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
    """Simulates the allocations of a GPU."""

    def __init__(
        self, log: EventLog, workspaces: Workspaces, inside: Callable[[], bool], where: Callable[[], tuple[str, str]]
    ) -> None:
        """``inside`` returns whether new tensors now belong to the device, ``where`` the current phase and module."""
        super().__init__()
        self.arena = Arena()  # the addresses of imaginary tensors
        self.lengths = Lengths()  # those that convolutions over time make of the input's
        self._log = log
        self._shapes = Shapes()
        self._workspaces = workspaces
        self._inside = inside
        self._where = where
        self._operations: dict[Any, _Operation] = {}
        self._accumulation = Accumulation()

    def __torch_dispatch__(self, op: OpOverload, types: object, args: Args = (), kwargs: Kwargs | None = None) -> Any:
        kwargs = kwargs or {}
        if op is ADD and self._accumulation.in_place(args, kwargs):
            self._log.call(op, str(op), args, list(args[:2]), [args[0]])
            gradient: Tensor = args[0]
            return gradient if self.arena.holds(*args) else gradient.add_(args[1])
        operation = self._operations.get(op) or self._operation(op)
        if operation.in_backward is not None and in_backward():
            operation = self._operation(operation.in_backward)
        op, kind, name = operation.op, operation.kind, operation.name
        if kind is _Kind.VIEW:
            return op(*args, **kwargs)
        tensors = _tensors(args, kwargs)
        is_imaginary, unwatched = self.arena.holds(*tensors), self._log.unwatched(tensors)
        if kind is _Kind.WRITE:
            if op is aten.index_put_.default:
                self._shapes.put(args[1], args[2])
            written = _written_arguments(op, args, kwargs) if is_imaginary else op(*args, **kwargs)
            if len(unwatched) < len(tensors):
                self._log.call(op, name, args, tensors, _tensors((written,), None))
            return written
        if len(unwatched) == len(tensors) and not self._inside():
            return self._results(op, name, args, kwargs, is_imaginary, tensors)[0]
        for tensor in unwatched:
            if tensor.dim():  # made on the host: a real run has copied it to the device by now
                self._log.birth(tensor, "to", "input")
        if operation.has_workspaces:
            out, leaves = self._with_workspaces(op, name, args, kwargs, is_imaginary, tensors)
        else:
            out, leaves = self._results(op, name, args, kwargs, is_imaginary, tensors)
            for leaf in in_allocation_order(op, args, leaves) if operation.is_reordered else leaves:
                self._log.birth(leaf, name)
        if operation.is_product:
            self._workspaces.product(op, name)
        self._log.call(op, name, args, tensors, leaves)
        return out

    def _operation(self, op: OpOverload) -> _Operation:
        return self._operations.setdefault(op, _Operation.of(op))

    def _with_workspaces(
        self, op: OpOverload, name: str, args: Args, kwargs: Kwargs, is_imaginary: bool, tensors: list[Tensor]
    ) -> tuple[Any, list[Tensor]]:
        """Like ``_results``, with the births of results and workspaces in the order of the kernel."""
        if op is aten.convolution.default and not args[6]:
            self.lengths.add_convolution(args[1], args[0], args[3], args[4], args[5])
        if op is aten.masked_select.default and self.arena.holds(args[1]):
            # What an imaginary mask selects is unknown: all is the worst case.
            args = args[0], torch.ones_like(args[1])
        with self._workspaces.of(op, name, args) as workspaces:
            out, leaves = self._results(op, name, self._as_copied(op, args), kwargs, is_imaginary, tensors)
            for number, leaf in enumerate(in_allocation_order(op, args, leaves)):
                self._log.birth(leaf, name)
                workspaces.after_result(number)
        return out, leaves

    def _as_copied(self, op: OpOverload, args: Args) -> tuple[Any, ...]:
        """Replace the gradient of a batch normalisation by the contiguous copy that its kernel computes on.

        The kernel's result has the layout of that copy. Other operations keep their arguments.
        """
        if op is not aten.native_batch_norm_backward.default or in_rows(args[0]) or not self.arena.holds(args[0]):
            return args
        dtype, size, *_ = spec_of(args[0])
        like = torch.empty(size, dtype=dtype, device="meta")
        return (self.arena.tensor(dtype, size, like.stride(), 0, like.nbytes), *args[1:])

    def _results(
        self, op: OpOverload, name: str, args: Args, kwargs: Kwargs, is_imaginary: bool, tensors: list[Tensor]
    ) -> tuple[Any, list[Tensor]]:
        """What an operation returns, and the tensors of it; ``is_imaginary`` if any of its inputs is."""
        if is_imaginary or op in _CUDA_ONLY or self._fills_large_float(op, args, kwargs, tensors):
            return self._imaginary_results(op, name, args, kwargs)
        # Speech models draw one number for LayerDrop: with 1, no layer is dropped, which takes the most memory.
        out = torch.ones(()) if op is aten.rand.default and args[0] == [] else op(*args, **kwargs)
        if isinstance(out, Tensor):  # the usual result, which needs no tree
            out = self.imagine(out)
            return out, [out]
        out = pytree.tree_map_only(Tensor, self.imagine, out)
        return out, [leaf for leaf in pytree.tree_leaves(out) if isinstance(leaf, Tensor)]

    def _fills_large_float(self, op: OpOverload, args: Args, kwargs: Kwargs, tensors: list[Tensor]) -> bool:
        """Whether an operation without values, such as ``zeros`` or ``zeros_like``, makes a large float tensor."""
        if tensors and op not in _LIKE:
            return False
        _, leaves = self._specs(op, str(op), args, kwargs)
        return any(isinstance(leaf, tuple) and _is_large(leaf) for leaf in leaves)

    def _imaginary_results(self, op: OpOverload, name: str, args: Args, kwargs: Kwargs) -> tuple[Any, list[Tensor]]:
        """Like ``_results``, from the shapes alone."""
        tree, specs = self._specs(op, name, args, kwargs)
        leaves = [self._from_spec(spec) for spec in specs]
        if tree is None:
            return leaves[0], leaves
        return pytree.tree_unflatten(leaves, tree), [leaf for leaf in leaves if isinstance(leaf, Tensor)]

    def _specs(self, op: OpOverload, name: str, args: Args, kwargs: Kwargs) -> tuple[Any, list[Any]]:
        """The shapes of the results. Raises ``TraceError`` for an operation whose shape depends on values."""
        try:
            return self._shapes.results(op, args, kwargs)
        except Exception as error:
            module = self._where()[1] or "the outermost module"
            reason = str(error).strip().split("\n")[0][:_REASON_LENGTH]
            raise TraceError(
                f"{name} in {module} cannot be traced: {reason}",
                "its result depends on values that do not exist without a GPU, or it has no shape rule; "
                'use estimator="published", or trace the model without this part',
            ) from error

    def _from_spec(self, spec: Any) -> Any:
        """A tensor of this shape, imaginary if it is large; any other result is its own value."""
        if not isinstance(spec, tuple):
            return spec
        dtype, size, stride, offset, nbytes = spec
        if nbytes > SMALL * dtype.itemsize:
            return self.arena.tensor(dtype, size, stride, offset, nbytes)
        # The values are unknown. Zeros keep losses finite, and flags such as GradScaler's overflow unset.
        flat = torch.zeros(nbytes // dtype.itemsize, dtype=dtype)
        return flat.as_strided(size, stride, offset)

    def imagine(self, tensor: Tensor) -> Tensor:
        """An imaginary tensor of the same shape for a large float; any other tensor itself."""
        spec = spec_of(tensor)
        return self.arena.tensor(*spec) if _is_large(spec) and not self.arena.holds(tensor) else tensor


def _is_large(spec: Any) -> bool:
    dtype, nbytes = spec[0], spec[4]
    return bool((dtype.is_floating_point or dtype.is_complex) and nbytes > SMALL * dtype.itemsize)


def _tensors(args: Args, kwargs: Kwargs | None) -> list[Tensor]:
    """The tensors among arguments and in lists of them."""
    tensors: list[Tensor] = []
    for value in (*args, *kwargs.values()) if kwargs else args:
        if isinstance(value, Tensor):
            tensors.append(value)
        elif isinstance(value, list | tuple):
            tensors.extend(v for v in value if isinstance(v, Tensor))
    return tensors


def _written_arguments(op: OpOverload, args: Args, kwargs: Kwargs) -> Any:
    """What an in-place or ``out=`` operation returns, without running it: the arguments that it writes to."""
    out = []
    schema = op._schema
    for returned in schema.returns:
        for position, argument in enumerate(schema.arguments):
            alias = argument.alias_info
            if alias is not None and alias.is_write and alias.before_set == returned.alias_info.before_set:
                out.append(args[position] if position < len(args) else kwargs[argument.name])
                break
    return out[0] if len(out) == 1 else tuple(out) if out else None
