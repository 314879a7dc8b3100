"""Workspaces of GPU kernels, which shape rules do not cover."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch._ops import OpOverload

from ._calls import Args
from ._cudnn import workspaces
from ._kernels import KEEPS_CUBLAS, KEEPS_CUBLAS_LT, SHARES_CUBLAS, SPLITS_NORMS
from ._shapes import selected
from .event_log import EventLog

aten = torch.ops.aten

KIB = 1024
_CUBLAS_LT = 1024 * KIB  # CUBLASLT_WORKSPACE_SIZE, for products with a bias


def cublas_bytes(capability: tuple[int, int]) -> int:
    """PyTorch's default workspace of a cuBLAS handle: 32 MiB from Hopper on, ":4096:2:16:8" (8.125 MiB) otherwise.

    Source: parseChosenWorkspaceSize in aten/src/ATen/cuda/CublasHandlePool.cpp.
    """
    return 32 * KIB * KIB if capability[0] >= 9 else (2 * 4096 + 8 * 16) * KIB


PRODUCTS = {aten.mm.default, aten.addmm.default, aten.bmm.default, aten.baddbmm.default, aten._int_mm.default}


def _ctc_beta(args: Args) -> list[int]:
    """Log beta of the backward pass, as large as the saved log alpha: ctc_loss_backward_gpu_template, LossCTC.cu."""
    return [args[6].untyped_storage().nbytes()]


def _ctc_blanks(args: Args) -> list[int]:
    """The sum over blanks, the even places of log alpha and log beta, as ``logsumexp`` computes it, ibid.

    The kernel for fewer than about 225 frames does without; there it is no peak, and counted, too.
    """
    clips, frames, places = args[6].shape
    one, blanks = clips * frames * args[6].element_size(), (places + 1) // 2
    return [one * blanks, one, one, clips * frames, -4, -3, one * blanks, one]


def _shared_gradients(query: torch.Tensor, key: torch.Tensor) -> list[int]:
    """The gradients per head of keys and values that several heads share, which are summed afterwards."""
    size = query.numel() // query.shape[-2] * key.shape[-2] * query.element_size()
    return [size, size] if query.shape[1] != key.shape[1] else []


def _efficient_backward(args: Args) -> list[int]:
    """The queries' gradient in float32, beside the sums of grad * out.

    aten/src/ATen/native/transformers/cuda/attention_backward.cu: ``delta``, and ``workspace`` of the CUTLASS kernel
    (mem_eff_attention/kernel_backward.h: GradQTempStorage). Its tiles are 64 queries long, heads are padded to 64, and
    each tile carries 16 bytes more. In float32 the sums are torch's own: of a product, then in the kernel's order.
    """
    query, key = args[1], args[2]
    batch, heads, length, head = query.shape
    tiles = batch * heads * -(-length // 64) * -(-head // 64)
    shared, delta, kernel = _shared_gradients(query, key), 4 * batch * heads * length, tiles * (4 * 64 * 64 + 16)
    if query.dtype is torch.float32:
        product, its_sum = len(shared) + 1, len(shared) + 2
        return [*shared, delta * head, delta, delta, -its_sum, -product, kernel]
    return [*shared, delta, kernel]


def _flash_backward(args: Args) -> list[int]:
    """``dq_accum`` and ``softmax_d`` of mha_bwd: aten/src/ATen/native/transformers/cuda/flash_attn/flash_api.cpp."""
    batch, heads, length, head = args[1].shape
    rows = 4 * batch * heads * (length + -length % 128)
    return [rows, rows * (head + -head % 32), *_shared_gradients(args[1], args[2])]


def _row_copies(*tensors: torch.Tensor) -> list[int]:
    """Softmax requires contiguous tensors: host_softmax in aten/src/ATen/native/cuda/SoftMax.cu."""
    return [t.numel() * t.element_size() for t in tensors if not t.is_contiguous()]


def _softmax_backward(args: Args) -> list[int]:
    """The product of gradient and result: softmax_backward_cuda_out in aten/src/ATen/native/cuda/SoftMax.cu."""
    grad, out = args[0], args[1]
    product = grad.numel() * torch.promote_types(grad.dtype, out.dtype).itemsize
    return [product, *_row_copies(out)]


def _safe_softmax(args: Args) -> list[int]:
    """Which inputs are -inf, which rows are nothing else, and the zero that these become.

    aten/src/ATen/native/SoftMax.cpp: _safe_softmax.
    """
    x = args[0]
    return [x.numel(), x.numel() // max(1, x.shape[-1]), x.element_size()]


_SORTED_EMBEDDINGS = 3072  # with more indices than this the gradient of an embedding sorts them first
_DIGIT = 256  # that many rows are sorted in one pass


def _embedding_backward(args: Args) -> list[int]:
    """A contiguous copy of the gradient, the sorted indices and their places: embedding_dense_backward_cuda."""
    grad, indices = args[0], args[1]
    count = indices.numel()
    return [*_copies(grad), *([8 * count] * 2 if count > _SORTED_EMBEDDINGS else [])]


def _embedding_sort(args: Args) -> list[int]:
    """The places that are sorted along, and cub's buffers, twice as many where one pass is not enough."""
    count, rows = args[1].numel(), args[2]
    if count <= _SORTED_EMBEDDINGS:
        return []
    return [8 * count, 2 * count // 5 + (16 * count if rows > _DIGIT else 0)]


def _embedding_segments(args: Args) -> list[int]:
    """Where each row's indices begin, their number, and unused keys: embedding_backward_cuda_kernel."""
    count = args[1].numel()
    return [8 * count, 8, 8 * count] if count > _SORTED_EMBEDDINGS else []


def _widened(x: torch.Tensor) -> list[int]:
    """Sums convert narrow integers to 64 bits: make_reduction in aten/src/ATen/native/ReduceOps.cpp."""
    narrow = not x.is_floating_point() and not x.is_complex() and x.dtype is not torch.int64
    return [8 * x.numel()] if narrow else []


def _copies(*tensors: torch.Tensor) -> list[int]:
    """Kernels that require contiguous rows copy transposed tensors first, and free the copies with their result.

    Convolutions: aten/src/ATen/native/Convolution.cpp ("avoid accidentally going through NHWC for permuted 3d input"),
    and of images whose channels do not lie last, aten/src/ATen/native/cudnn/ConvShared.cpp; layer norm:
    layer_norm_cuda in aten/src/ATen/native/cuda/layer_norm_kernel.cu.
    """
    return [0 if in_rows(t) else t.numel() * t.element_size() for t in tensors]


def in_rows(x: torch.Tensor) -> bool:
    """Whether a kernel takes a tensor without a copy: it is contiguous, or an image with channels last."""
    return bool(x.is_contiguous() or (x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last)))


def _in_order(*tensors: torch.Tensor) -> list[int]:
    """Flash attention's backward requires (batch, length, heads, head size): _flash_attention_backward."""
    return [0 if t.transpose(1, 2).is_contiguous() else t.numel() * t.element_size() for t in tensors]


def _selected_places(args: Args) -> list[int]:
    """The places that a mask selects, an int64 for each axis: masked_select_out_cuda_impl, IndexKernel.cpp."""
    places, axes = selected(args[0], args[1])
    return [0, 8 * axes * places]


def _scattered_places(args: Args) -> list[int]:
    """The running count of a mask in int64, and the mask itself where it lies expanded: masked_scatter__cuda, ibid."""
    count = args[0].numel()
    return [0, 8 * count, 0 if args[1].shape == args[0].shape and args[1].is_contiguous() else count]


_CONVOLUTIONS = {aten.convolution.default, aten.convolution_backward.default}

# Sizes that a call allocates before its results and frees after them: all but the first before it sums a bias.
_DURING: dict[Any, Callable[[Any], list[int]]] = {
    aten.convolution.default: lambda args: _copies(args[0]),
    aten.convolution_backward.default: lambda args: _copies(args[1], args[0]),
    aten._ctc_loss_backward.default: _ctc_beta,
    aten._ctc_loss_backward.Tensor: _ctc_beta,
    aten._scaled_dot_product_flash_attention_backward.default: lambda args: _in_order(args[0], args[4]),
    aten.embedding_dense_backward.default: _embedding_backward,
    aten.native_layer_norm.default: lambda args: _copies(args[0]),
    aten.native_batch_norm_backward.default: lambda args: _copies(args[0]),
    aten.native_layer_norm_backward.default: lambda args: _copies(args[1]),
    aten.masked_select.default: _selected_places,
    aten.masked_scatter.default: _scattered_places,
}


def _summed_columns(x: torch.Tensor, axes: Sequence[int] | None, *_: object) -> tuple[int, int]:
    """The columns and the rows of a sum over all axes but the last, such as a bias' gradient; (0, 0) for other sums.

    Its buffer is no polynomial of the shape and depends on the GPU's multiprocessors, so the trace has the columns and
    rows, and the replay the rule (gpu_reduce_kernel, aten/src/ATen/native/cuda/Reduce.cuh).
    """
    leading = x.dim() - 1
    if leading < 1 or sorted(a % x.dim() for a in axes or ()) != list(range(leading)) or not x.is_contiguous():
        return 0, 0
    return x.shape[-1], x.shape[:-1].numel()


def _summed_bias(grad: torch.Tensor, *others: Any) -> tuple[int, int]:
    """The bias' gradient of a convolution over time whose output's gradient is transposed."""
    return _summed_columns(grad.transpose(1, 2), (0, 1)) if others[-1][2] and grad.dim() == 3 else (0, 0)


_SUMS: dict[Any, Callable[..., tuple[int, int]]] = {
    aten.sum.dim_IntList: _summed_columns,
    aten.convolution_backward.default: _summed_bias,
}

# Sizes that a call allocates and frees before its results.
_BEFORE: dict[Any, Callable[[Any], list[int]]] = {aten.embedding_dense_backward.default: _embedding_sort}

# Sizes that a call allocates after its results; -n frees the n-th of them, the end all others.
_PASSING: dict[Any, Callable[[Any], list[int]]] = {
    aten._ctc_loss_backward.default: _ctc_blanks,
    aten._ctc_loss_backward.Tensor: _ctc_blanks,
    aten._softmax.default: lambda args: _row_copies(args[0]),
    aten._log_softmax.default: lambda args: _row_copies(args[0]),
    aten._softmax_backward_data.default: _softmax_backward,
    aten._log_softmax_backward_data.default: lambda args: _row_copies(args[0], args[1]),
    aten.embedding_dense_backward.default: _embedding_segments,
    aten.cumsum.default: lambda args: _widened(args[0]),
    aten.sum.default: lambda args: _widened(args[0]),
    aten.sum.dim_IntList: lambda args: _widened(args[0]),
    aten._scaled_dot_product_efficient_attention_backward.default: _efficient_backward,
    aten._scaled_dot_product_flash_attention_backward.default: _flash_backward,
}
if hasattr(aten, "_safe_softmax"):  # from torch 2.5 on
    _PASSING[aten._safe_softmax.default] = _safe_softmax


def needs_workspaces(op: OpOverload) -> bool:
    """Whether an operation other than a product may allocate more than its results."""
    return any(op in table for table in (_CONVOLUTIONS, _DURING, _SUMS, _BEFORE, _PASSING))


@dataclass(frozen=True)
class _Call:
    """A running call. ``sizes`` are the workspaces after its first results, one for each of them."""

    log: EventLog
    name: str
    sizes: list[int]
    copies: ExitStack

    def after_result(self, number: int) -> None:
        """A result is allocated. A bias' gradient comes after the copies of the others' operands are freed."""
        if number < len(self.sizes):
            if self.sizes[number]:
                self.log.passing(self.sizes[number], self.name)
            if number == len(self.sizes) - 1:
                self.copies.close()


class Workspaces:
    """Adds each library's workspace when an operation first needs it."""

    def __init__(self, log: EventLog, capability: tuple[int, int], in_backward: Callable[[], bool]) -> None:
        self._log = log
        self._cublas = cublas_bytes(capability)
        self._in_backward = in_backward
        self._handles: set[tuple[str, bool]] = set()
        self.widths: set[int] = set()
        """Lengths of the loaded model's vectors: biases, and weights of norms."""

    @contextmanager
    def of(self, op: OpOverload, name: str, args: Args) -> Iterator[_Call]:
        """Workspaces of one call, alive while the body makes its results."""
        copies = _DURING.get(op)
        with ExitStack() as first, ExitStack() as others:
            for number, size in enumerate(copies(args) if copies else ()):
                if size:
                    (others if number else first).enter_context(self._log.during(size, name))
                    self._log.copied(size, args[0])
            before = _BEFORE.get(op)
            self._log.sequence(before(args) if before else [], name)
            yield _Call(self._log, name, workspaces(op, args) if op in _CONVOLUTIONS else [], others)
            self._passing(op, name, args)
            others.close()
            self._sum(op, args)

    def _passing(self, op: OpOverload, name: str, args: Args) -> None:
        if op is aten.native_layer_norm_backward.default:
            self._norm(args[0], args[1], args[5], args[7], name)
        rule = _PASSING.get(op)
        self._log.sequence(rule(args) if rule else [], name)

    def _sum(self, op: OpOverload, args: Args) -> None:
        """Only columns as wide as a parameter: other widths may change with the shape, and their sums are small."""
        rule = _SUMS.get(op)
        columns, rows = rule(*args) if rule else (0, 0)
        if columns in self.widths and rows:
            self._log.passing(rows, f"column_sum:{columns}")

    def _norm(
        self, grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor | None, wanted: list[bool], name: str
    ) -> None:
        """The gradients of a norm's weight and bias, after a copy of a transposed gradient."""
        with ExitStack() as copied:
            for size in filter(None, _copies(grad)):
                copied.enter_context(self._log.during(size, name))
                self._log.copied(size, grad)
            self._norm_blocks(x, weight, sum(wanted[1:]))

    def _norm_blocks(self, x: torch.Tensor, weight: torch.Tensor | None, gradients: int) -> None:
        """Sums of blocks of rows, and then of these, for each gradient of weight and bias.

        Whether there are any depends on the rows and on the GPU, so the trace counts rows as for column sums
        (ConfigureAndLaunchGammaBetaBackwardKernel, aten/src/ATen/native/cuda/layer_norm_kernel.cu, from torch 2.8 on).
        """
        if weight is None or not SPLITS_NORMS:
            return
        columns = weight.numel()
        rows, blocks = x.numel() // columns, f"norm_blocks:{weight.element_size()}:{columns}"
        with ExitStack() as sums:
            for _ in range(gradients):
                sums.enter_context(self._log.during(rows, blocks))
            for _ in range(gradients):
                self._log.passing(rows, f"norm_sum:{columns}")

    def product(self, op: OpOverload, name: str) -> None:
        """A workspace per call, or a kept one per thread: autograd's device thread has its own cuBLAS handle."""
        biased = op is aten.addmm.default
        with self._log.during(_CUBLAS_LT, name) if biased and not KEEPS_CUBLAS_LT else nullcontext():
            if KEEPS_CUBLAS:
                self._keep(self._cublas, "cuBLAS", name)
        if biased and KEEPS_CUBLAS_LT and not SHARES_CUBLAS:
            self._keep(_CUBLAS_LT, "cuBLASLt", name)
        if not biased and not KEEPS_CUBLAS:
            self._log.passing(self._cublas, name)

    def _keep(self, size: int, library: str, name: str) -> None:
        """At this thread's first product by the library."""
        handle = (library, self._in_backward())
        if handle not in self._handles:
            self._handles.add(handle)
            self._log.staying(size, name)
