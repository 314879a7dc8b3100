"""Trainings that fail with reentrant checkpoints.

A reentrant checkpoint recomputes its layer within the backward pass, on detached arguments, and runs a backward pass of
its own (CheckpointFunction in torch/utils/checkpoint.py). A keyword argument, as transformers passes to its layers, is
not detached, so that the inner backward pass continues behind it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn
from torch.autograd.function import FunctionCtx
from torch.utils.checkpoint import CheckpointFunction

from .._core.training_session import override
from .event_log import CheckpointError

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
