"""A loop of the user's own as the engine computes batches with it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from .._core.batches import batch_size
from .._core.out_of_memory import classify, clear_frames
from .._core.random_state import rng_state, set_rng_state
from ..errors import AsrConfigError, InvalidArgumentError
from .loop import Batch, Call, Loop, Weight
from .loss_rule import factor, weighted

if TYPE_CHECKING:
    from accelerate import Accelerator


_FEWEST = 2  # clips that a measurement needs
LossFunction = Callable[[Any, Any], torch.Tensor]


class OwnLoop(Loop):
    """Forward and backward as such loops are written: autocast in the loss, a scaler, accumulation."""

    name = "guarded_step"
    model: torch.nn.Module | None = None  # as it was passed, without accelerate's wrapper
    optimizer: torch.optim.Optimizer | None = None
    step_number = 0
    output: Path | None = None
    is_coarse = False
    """Whether a module was called with autocast on when the loss was measured, as it could not be without."""

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        loss_fn: LossFunction,
        scaler: torch.amp.GradScaler | None,
        accumulation: int,
        accelerator: Accelerator | None,
        labels: str,
        output: Path | None,
    ) -> None:
        self._wrapped, self.optimizer, self._loss_fn, self._scaler = model, optimizer, loss_fn, scaler
        self.model = model if accelerator is None else accelerator.unwrap_model(model)
        self.accumulation, self._accelerator, self.labels, self.output = accumulation, accelerator, labels, output
        self._needs_autocast = False

    def is_complete(self, batches: int) -> bool:
        """Whether so many batches make up an optimizer step."""
        if self._accelerator is not None:
            return bool(self._accelerator.sync_gradients)
        return batches >= self.accumulation

    def roots(self) -> Mapping[str, Any]:
        """The model and what the loss function holds."""
        return {type(self.model).__name__: self.model, "loss_fn": self._loss_fn}

    def uncleared(self) -> list[torch.Tensor]:
        """All: the loop may call backward itself between steps, and the optimizer may have a part of the model."""
        return self.parameters()

    def prepare(self) -> None:
        """The loop has chosen the mode."""

    def compute(self, call: Call, part: Batch, weight: Weight, *, whole_window: bool) -> Any:
        """Of the loss divided by the accumulation steps."""
        loss = self.loss(call, part)
        if not loss.requires_grad:
            raise InvalidArgumentError(
                "the loss has no gradient", "unfreeze parameters; do not detach the loss or compute it under no_grad"
            )
        share = loss if weight is None else loss * factor(weight, loss)
        if self._accelerator is not None:
            self._accelerator.backward(share)  # divides by its own accumulation steps
        else:
            share = share / self.accumulation
            (share if self._scaler is None else self._scaler.scale(share)).backward()
        if weight is None:
            return loss.detach()
        return weighted(loss.float() if loss.element_size() < 4 else loss, weight)  # shares are added up

    def gradient(self, call: Call, part: Batch, scale: float) -> None:
        """Without the scaler, and without autocast where that can be: rounding to 16 bits may hide the rule."""
        random = rng_state()
        if not self._needs_autocast:
            try:
                with _without_autocast():
                    return self._backward(call, part, scale)
            except AsrConfigError:
                raise
            except Exception as error:
                is_memory = classify(error)["class"] in ("gpu_oom", "maybe")
                self._needs_autocast = not is_memory or batch_size(part) <= _FEWEST  # as flash attention does
                if is_memory:
                    raise
                clear_frames(error)
        set_rng_state(random)
        for p in self.parameters():
            p.grad = None
        return self._backward(call, part, scale)

    def _backward(self, call: Call, part: Batch, scale: float) -> None:
        """Records whether modules are called with autocast on; that of accelerate is within the model's forward."""

        def note(*_: object) -> None:
            self.is_coarse = self.is_coarse or torch.is_autocast_enabled(device)

        device = self.parameters()[0].device.type
        hook = torch.nn.modules.module.register_module_forward_pre_hook(note)
        try:
            loss = self.loss(call, part)
        finally:
            hook.remove()
        (loss * scale).backward()

    def loss(self, call: Call, part: Batch) -> Any:
        """By the loss function; raises ``InvalidArgumentError`` for what is not one number."""
        loss: object = self._loss_fn(self._wrapped, part)
        if isinstance(loss, torch.Tensor) and loss.numel() == 1:
            return loss.reshape(()) if loss.dim() else loss
        kind = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else type(loss).__name__
        raise InvalidArgumentError(f"loss_fn returns {kind}", "return the loss as a tensor of one number")

    @contextlib.contextmanager
    def measuring(self) -> Iterator[None]:
        """Such a loop logs what ``step`` returns, and nothing in between."""
        yield


@contextlib.contextmanager
def _without_autocast() -> Iterator[None]:
    enable = torch.set_autocast_enabled
    devices = [device for device in ("cpu", "cuda") if torch.is_autocast_enabled(device)]
    for device in devices:
        enable(device, False)
    torch.set_autocast_enabled = lambda device, _: enable(device, False)
    try:
        yield
    finally:
        torch.set_autocast_enabled = enable
        for device in devices:
            enable(device, True)
