"""A Trainer's own ``training_step``: whether its micro-batches can be weighted, tried on a few samples.

It may add to the loss, scale it, or compute it from several forwards: what arrives at ``accelerator.backward`` is
weighted, whatever it is. It may also do what no weight mends: call ``loss.backward()`` past the accelerator, or change
weights and follow the gradient there (FGM, SAM). Gradients tell: those of the parts must add up to that of the whole.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from .._base.errors import AsrConfigError, InvalidArgumentError
from .._base.out_of_memory import classify, first_line
from .._base.override import override
from ..memory.probe import changed_tensors, gradients_aside, tensor_sums
from .loss_weights import NotFiniteError
from .measurement import steady
from .model_state import Attributes
from .optimizer_step import fits_on_host

_LINEAR = 1e-3  # relative; gradients of twice the loss are twice as large


class UnfitStepError(Exception):
    """Why micro-batches of this ``training_step`` cannot be weighted; a sentence's end."""


def has_custom_step(trainer: Any) -> bool:
    """Whether ``training_step`` is another one than the Trainer's."""
    from transformers import Trainer

    return type(trainer).training_step is not Trainer.training_step or "training_step" in vars(trainer)


def has_custom_loss(trainer: Any) -> bool:
    """Whether the loss is computed by a function of the user's."""
    from transformers import Trainer

    own = type(trainer).compute_loss is not Trainer.compute_loss or "compute_loss" in vars(trainer)
    return own or getattr(trainer, "compute_loss_func", None) is not None


def check_gradient(loss: Any) -> None:
    """Raise ``InvalidArgumentError`` for a loss that cannot be followed back."""
    if not loss.requires_grad:
        raise InvalidArgumentError(
            "the loss has no gradient", "unfreeze parameters; do not detach the loss or compute it under no_grad"
        )


def has_hooks(model: Any) -> bool:
    """Whether hooks of weights may change gradients."""
    return any(p._backward_hooks for p in model.parameters())


class CustomStep:
    """Runs ``step(batch)``, a training step of one micro-batch, and leaves weights and gradients as they were."""

    def __init__(
        self,
        trainer: Any,
        model: Any,
        attributes: Attributes,
        step: Callable[[Any], Any],
        *,
        keeps_weights: bool = False,
    ) -> None:
        self._trainer, self._model, self._attributes, self._step = trainer, model, attributes, step
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        self._keeps_weights = keeps_weights
        self._backwards = self._direct = 0
        self._scale, self._moved = 1.0, False

    def gradient(self, batch: Any, seed: int = 0, scale: float = 1.0) -> Any:
        """Sums over the gradient of each parameter, two of them, of ``scale`` times the loss; linear in the gradient.

        Raises ``UnfitStepError``, and ``NotFiniteError`` of a gradient that is not finite.
        """
        self._backwards = self._direct = 0
        self._scale, self._moved = scale, False
        with self._watched(seed), gradients_aside(self._parameters):
            try:
                self._step(batch)
            except AsrConfigError:
                raise
            except Exception as error:
                if classify(error)["class"] in ("gpu_oom", "maybe"):
                    raise
                raise UnfitStepError(
                    f"failed on {len(next(iter(batch.values())))} samples: {first_line(error)}"
                ) from error
            found = [s for p in self._parameters for s in _sums(p)]
        self._check()
        if not all(bool(each.isfinite()) for each in found):
            raise NotFiniteError
        return torch.stack(found).float()

    def check_scale(self, batch: Any, gradient: Any) -> None:
        """Raise ``UnfitStepError`` unless twice the loss has twice the ``gradient`` of ``batch``."""
        double = self.gradient(batch, scale=2.0)
        if not bool((double - 2 * gradient).norm() <= _LINEAR * (2 * gradient).norm() + 1e-12):
            raise UnfitStepError("changes gradients after backward, so that they do not follow a weight")

    @contextlib.contextmanager
    def _watched(self, seed: int) -> Iterator[None]:
        copied = [] if self._keeps_weights else self._parameters
        if not fits_on_host(copied):
            raise UnfitStepError("cannot be tried: host memory has no place for a copy of the weights")
        weights = [p.detach().to("cpu", copy=True) for p in copied]
        self._start = tensor_sums(copied)
        direct = torch.Tensor.backward
        with contextlib.ExitStack() as back:
            back.callback(setattr, torch.Tensor, "backward", direct)
            back.callback(override(self._model, "train", lambda mode=True: self._model))
            back.callback(override(self._trainer.accelerator, "backward", self._backward(direct)))
            torch.Tensor.backward = self._counted(direct)
            back.enter_context(steady(self._model, self._attributes, seed))
            back.callback(self._put_back, weights)
            yield

    def _put_back(self, weights: list[Any]) -> None:
        if changed_tensors(self._parameters[: len(weights)], self._start):
            self._moved = True
            with torch.no_grad():
                for p, value in zip(self._parameters, weights, strict=True):
                    p.copy_(value)

    def _backward(self, original: Callable[..., Any]) -> Callable[..., None]:
        def backward(loss: Any, **_: Any) -> None:
            several = self._backwards > 0 and not self._keeps_weights
            self._moved |= several and bool(changed_tensors(self._parameters, self._start))
            check_gradient(loss)
            self._backwards += 1
            original(loss * self._scale)

        return backward

    def _counted(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def backward(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            self._direct += 1
            return original(tensor, *args, **kwargs)

        return backward

    def _check(self) -> None:
        if self._direct:
            raise UnfitStepError("calls backward() of the loss itself, past accelerator.backward")
        if not self._backwards:
            raise UnfitStepError("does not call accelerator.backward")
        if self._moved:
            raise UnfitStepError("changes weights within the step")


def _sums(p: Any) -> tuple[Any, Any]:
    if p.grad is None:
        return (torch.zeros((), dtype=torch.float64, device=p.device),) * 2
    gradient = p.grad.detach().double()
    return gradient.sum(), (gradient * p.detach().double()).sum()
