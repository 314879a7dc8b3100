"""Several processes that train together (DistributedDataParallel).

DDP averages gradients while backward runs, one collective after the other, in all processes alike: one that runs out of
memory in between leaves the others waiting for ever. Under the guard each process computes its window on its own, on
the model inside DDP's wrapper, as often and in as many pieces as it needs: DDP's hooks do nothing in a backward pass
whose forward it has not seen. When the window is complete the processes tell each other whether they succeeded, and
average the gradients. The price is that this does not overlap with the backward pass.

All that they exchange goes by one message of the same size, so that a process which fails for good can say so wherever
the others are: whatever they meet for next, they find a failure.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist
from torch._utils import _flatten_dense_tensors, _take_tensors, _unflatten_dense_tensors
from torch.nn.parallel import DistributedDataParallel

from .._core.out_of_memory import first_line
from .._core.output import logger
from .._core.training_session import override
from ..errors import InfeasiblePlanError

if TYPE_CHECKING:
    from transformers import Trainer

T = TypeVar("T")

_GROUP_BYTES = 4 << 20  # larger gradients are averaged in place, smaller ones together
_NUMBERS = 4  # of a message
_NOTIFY_S = 120.0  # how long one that fails waits for the others to hear it


class OtherProcessFailedError(InfeasiblePlanError):
    """Another process of this training has failed, so that this one cannot continue."""


class ProcessGroup:
    """The processes of one training; with one process all of this does nothing."""

    def __init__(self, trainer: Trainer) -> None:
        self.size: int = trainer.args.world_size
        self.alone: bool = self.size == 1
        """Whether there is one process only."""
        self._trainer = trainer

    def inner(self, model: torch.nn.Module) -> Any:
        """The model that computes without collectives; where DDP was compiled, not the compiled one."""
        bare = model._modules.get("_orig_mod", model)  # getattr is slow where there is none
        return bare.module if DistributedDataParallel in type(bare).__mro__ else model  # so is isinstance, of an ABC

    @contextlib.contextmanager
    def apart(self) -> Iterator[None]:
        """Inside, the Trainer counts tokens in this process only, and does not multiply losses by their number.

        It asks the others in each prediction step: one that takes more of them would wait for answers to nothing.
        """
        arguments, name = self._trainer.args, "average_tokens_across_devices"
        with contextlib.ExitStack() as back:
            if not self.alone and hasattr(arguments, name):
                back.callback(override(arguments, name, False))
            yield

    def failed(self, error: BaseException) -> None:
        """Notify the other processes that this one fails for good, so that they do not wait for it."""
        if not self.alone and isinstance(error, Exception) and not isinstance(error, OtherProcessFailedError):
            try:
                self._meet(failed=True)
            except Exception as lost:  # the error that is being raised matters more
                logger.warning("cannot notify the other processes of a failure: %s", first_line(lost))

    @contextlib.contextmanager
    def joined(self) -> Iterator[None]:
        """Each process works on its own inside, and waits for the others at the end: all succeed, or all fail."""
        try:
            yield
        except BaseException as error:
            self.failed(error)
            raise
        if not self.alone:
            self._meet()

    def fetched(self, batches: Iterator[Any], count: int) -> Iterator[Any]:
        """``batches``, the first ``count`` of them ready in all processes: a collator may fail in one."""
        if self.alone:
            return batches
        with self.joined():
            ready = list(itertools.islice(batches, count))
        return itertools.chain(ready, batches)

    def summed(self, value: float | torch.Tensor) -> float:
        """The sum of ``value`` over all processes."""
        return self._meet([float(value)])[1]

    def gathered(self, value: T) -> list[T]:
        """``value`` of every process, by rank."""
        if self.alone:
            return [value]
        self._meet()
        values: list[T] = [value] * self.size
        dist.all_gather_object(values, value)
        return values

    def any(self, value: bool) -> bool:
        """Whether ``value`` is true in any process."""
        return value if self.alone else self.summed(value) > 0

    def average(self, parameters: list[Any], left_out: float | torch.Tensor) -> Any:
        """Average the gradients of all processes, once the window is complete in each; what all have left out.

        Raises ``OtherProcessFailedError`` when another one has failed.
        """
        trained = [p for p in parameters if p.requires_grad]
        _, everywhere, missing, _ = self._meet([float(left_out), sum(p.grad is None for p in trained)])
        if missing:
            trained = self._used_anywhere(trained)
        for group in _take_tensors([p.grad for p in trained], _GROUP_BYTES):  # in the same order everywhere
            flat = group[0] if len(group) == 1 else _flatten_dense_tensors(group)
            flat.div_(self.size)  # first, as DDP does: a sum may overflow in 16 bits
            self._reduce(flat)
            if len(group) > 1:
                for gradient, value in zip(group, _unflatten_dense_tensors(flat, group), strict=True):
                    gradient.copy_(value)
        return everywhere

    def share_buffers(self, model: torch.nn.Module) -> None:
        """Give all processes the first one's running statistics, as DDP does before a forward."""
        if not getattr(getattr(model, "_orig_mod", model), "broadcast_buffers", False):
            return
        for buffer in self.inner(model).buffers():
            dist.broadcast(buffer, 0)

    def _meet(self, values: Sequence[float] = (), failed: bool = False) -> list[float]:
        """The sums over all processes: how many have failed, then each value."""
        numbers = [float(failed), *map(float, values)]
        numbers += [0.0] * (_NUMBERS - len(numbers))
        message = torch.tensor(numbers, dtype=torch.float64, device=self._trainer.args.device)
        self._reduce(message, _NOTIFY_S if failed else None)
        sums: list[float] = message.tolist()
        if sums[0] and not failed:
            raise OtherProcessFailedError("another process of this training has failed", "see its own error")
        return sums

    def _used_anywhere(self, parameters: list[Any]) -> list[Any]:
        """The parameters with a gradient in any process; where this one has none, it gets zeros."""
        device = self._trainer.args.device
        used = torch.tensor([p.grad is not None for p in parameters], dtype=torch.int32, device=device)
        self._reduce(used)
        anywhere = [p for p, count in zip(parameters, used.tolist(), strict=True) if count]
        for p in anywhere:
            if p.grad is None:
                p.grad = torch.zeros_like(p)
        return anywhere

    def _reduce(self, tensor: torch.Tensor, limit_s: float | None = None) -> None:
        work = dist.all_reduce(tensor, async_op=True)
        work.wait() if limit_s is None else work.wait(timedelta(seconds=limit_s))
