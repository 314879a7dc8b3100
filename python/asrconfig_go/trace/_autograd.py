"""What autograd's engine does beside the operators: gradients that it adds in place, reentrant checkpoints that fail.

A tensor that is used twice gets two gradients. The engine adds the second into the first if nothing else refers to the
first, and allocates a third tensor otherwise (can_accumulate_inplace in torch/csrc/autograd/input_buffer.cpp). Under a
dispatch mode it always allocates, which would record memory that a real run does not take. ``Accumulation`` decides
what the engine would have done.

A reentrant checkpoint recomputes its layer within the backward pass, on detached arguments, and runs a backward pass of
its own (CheckpointFunction in torch/utils/checkpoint.py). A keyword argument, as transformers passes to its layers, is
not detached, so that the inner backward pass continues behind it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch._ops import OpOverload
from torch.autograd.function import FunctionCtx
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import CheckpointFunction

from .._core.training_session import override
from ._calls import Args, Kwargs, in_backward
from .event_log import CheckpointError

ADD = torch.ops.aten.add.Tensor

_storage_use_count: Any = getattr(torch._C, "_storage_Use_Count", None)  # None: this torch does not expose it
_RefCounts = tuple[int, int, int]
_HINT = (
    'choose gradient_checkpointing="non_reentrant" here, and '
    'gradient_checkpointing_kwargs={"use_reentrant": False} for the training'
)
# Parts of torch's messages where a training with reentrant checkpoints fails, and the reason.
_FAILURES = {
    "backward through the graph a second time": (
        "layers share a tensor that reaches them by keyword, and the first backward pass through it frees what the "
        "second needs"
    ),
    "does not require grad": (
        "no input of a checkpointed layer requires gradients, as with frozen weights in front of it, so that those of "
        "its own weights are not computed"
    ),
}


def _ref_counts(args: Args) -> _RefCounts:
    """The reference counts of the first tensor, its storage and its Python object, within a dispatch mode."""
    tensor = args[0]
    return tensor._use_count(), _storage_use_count(tensor.untyped_storage()._cdata), sys.getrefcount(tensor)


class DirectMode(TorchDispatchMode):  # type: ignore[misc]
    """A mode that torch calls directly: others are wrapped by ``torch._disable_dynamo``, which takes longer."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


class _GradientCounts(DirectMode):
    """Notes the reference counts of each gradient that the engine adds another to."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: list[_RefCounts] = []

    def __torch_dispatch__(self, op: OpOverload, types: object, args: Args = (), kwargs: Kwargs | None = None) -> Any:
        if op is ADD and in_backward():
            self.counts.append(_ref_counts(args))
        return op(*args, **(kwargs or {}))


def _counts_of_engine_alone() -> _RefCounts | None:
    """The counts when only the engine refers to a gradient; None where this torch does not expose them."""
    if _storage_use_count is None or not hasattr(Tensor, "_use_count"):
        return None
    x = torch.ones(1, requires_grad=True)
    with torch.enable_grad(), _GradientCounts() as gradients:
        used_twice = x * 2
        (used_twice * 3 + used_twice * 4).backward()
    return gradients.counts[0] if gradients.counts else None


class Accumulation:
    """Recognises additions of gradients that the engine would have made in place without a mode.

    It would if nothing else refers to the first gradient, by reference counts. The gradient of a transposed weight, a
    view, never qualifies. A backward formula that adds two tensors of its own has the same counts: it is rare, and is
    recorded as in place.
    """

    def __init__(self) -> None:
        self._alone = _counts_of_engine_alone()

    def in_place(self, args: Args, kwargs: dict[str, Any]) -> bool:
        """Whether the engine would add ``args[1]`` into ``args[0]``.

        Call it directly in ``__torch_dispatch__``: each further frame that holds ``args`` changes the counts.
        """
        if self._alone is None or kwargs or not in_backward() or torch.is_grad_enabled():
            return False
        if not all(isinstance(a, Tensor) for a in args) or args[0].size() != args[1].size():
            return False
        return _ref_counts(args) == self._alone and _is_dense(args[0])


def _is_dense(tensor: Tensor) -> bool:
    """Whether the elements fill the memory between the first and the last, each once, in some order of axes."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.size(), strict=True)):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def refused(error: Exception) -> CheckpointError | None:
    """Explains the failure of a step with reentrant checkpoints; None where they are not the cause."""
    for failure, reason in _FAILURES.items():
        if failure in str(error):
            sentence = str(error).split("\n")[0].split(" (or ")[0].split(". ")[0]
            return CheckpointError(f"a training with reentrant checkpoints fails ({sentence}): {reason}", _HINT)
    return None


@contextmanager
def endless_ones_refused() -> Iterator[None]:
    """Raises ``CheckpointError`` inside where the backward pass of a reentrant checkpoint starts itself again.

    WavLM's layers take a position bias by keyword and return it, which makes it a result of the last layer: the
    backward pass of each layer starts that of the last one, endlessly.
    """
    original = CheckpointFunction.backward
    running: list[Any] = []

    def backward(ctx: FunctionCtx, *gradients: torch.Tensor | None) -> Any:
        if any(ctx is outer for outer in running):
            arguments = getattr(ctx.run_function, "args", ())
            layer = next((type(part).__name__ for part in arguments if isinstance(part, nn.Module)), "a layer")
            raise CheckpointError(
                f"the backward pass of reentrant checkpoints never ends: that of {layer} starts itself again, through "
                "a tensor that the layer takes by keyword and returns",
                _HINT,
            )
        running.append(ctx)
        try:
            return original(ctx, *gradients)
        finally:
            running.pop()

    with ExitStack() as stack:
        stack.callback(override(CheckpointFunction, "backward", staticmethod(backward)))
        yield
