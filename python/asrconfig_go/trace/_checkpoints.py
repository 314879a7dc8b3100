"""Reentrant checkpoints with which no training runs, refused by name.

A reentrant checkpoint computes its part once more within the backward pass, on detached arguments, and runs a backward
pass of its own (CheckpointFunction in torch/utils/checkpoint.py). What reaches the part other than as a positional
argument, as transformers' layers are given it by keyword, is not detached, and that pass goes on behind it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn
from torch.utils.checkpoint import CheckpointFunction

from ._trace_errors import CheckpointError

_HINT = (
    'choose gradient_checkpointing="non_reentrant" here, and '
    'gradient_checkpointing_kwargs={"use_reentrant": False} for the training'
)
# What torch says where a training with reentrant checkpoints fails: the reason.
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
    """What the failure of a step with reentrant checkpoints means; None where it is not due to them."""
    for said, reason in _FAILURES.items():
        if said in str(error):
            return _error(f"a training with reentrant checkpoints fails ({_first_sentence(error)}): {reason}")
    return None


@contextmanager
def endless_ones_refused() -> Iterator[None]:
    """While it lasts, a reentrant checkpoint whose backward pass begins itself again raises ``CheckpointError``.

    WavLM's layers hand a position bias on by keyword and give it back, which makes it a result of the last layer: the
    backward pass of each layer begins that of the last one, without end.
    """
    original = CheckpointFunction.backward
    running: list[Any] = []

    def backward(ctx: Any, *gradients: Any) -> Any:
        if any(ctx is each for each in running):
            raise _error(
                f"the backward pass of reentrant checkpoints never ends: that of {_part(ctx.run_function)} begins "
                "itself again, through a tensor that the layer is given by keyword and gives back"
            )
        running.append(ctx)
        try:
            return original(ctx, *gradients)
        finally:
            running.pop()

    CheckpointFunction.backward = staticmethod(backward)
    try:
        yield
    finally:
        CheckpointFunction.backward = staticmethod(original)


def _part(function: Any) -> str:
    """The layer of transformers that a checkpoint computes, by its class."""
    layer = next((each for each in getattr(function, "args", ()) if isinstance(each, nn.Module)), None)
    return "a layer" if layer is None else type(layer).__name__


def _first_sentence(error: Exception) -> str:
    return str(error).split("\n")[0].split(" (or ")[0].split(". ")[0]


def _error(text: str) -> CheckpointError:
    return CheckpointError(text, _HINT)
