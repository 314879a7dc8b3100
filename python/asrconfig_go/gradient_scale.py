"""Keeps the gradient of an optimizer step the same however the effective batch is cut into micro-batches.

The Trainer divides a loss by the accumulation steps unless the model's forward takes ``**kwargs``, which it reads as
"divides by ``num_items_in_batch`` itself". Most speech models take ``**kwargs`` and ignore that number, so their
gradient is multiplied by the accumulation steps (transformers issue 47688). Some older versions divide no loss at all,
others also the sums that need none. So the kind of the loss is found here, and the first accumulated backward pass
shows whether the Trainer at hand treats it rightly; where it does not, the loss is weighted here instead.

What remains: micro-batches count alike. With a token mean and unequal numbers of tokens, or in an epoch's last, shorter
window, samples of smaller micro-batches weigh more than in one large batch.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import Any

logger = logging.getLogger("asrconfig_go")

# Losses that a forward computes by itself, as a mean, when it mentions neither of the two names below.
_OWN_MEANS = ("CrossEntropyLoss(", "cross_entropy(", "BCEWithLogitsLoss(", "MSELoss(")
_HONOURS = ("loss_function(", "num_items_in_batch")


def loss_kind(trainer: Any) -> str | None:
    """``"mean"`` or ``"sum"`` over the micro-batch, or None where the Trainer's own treatment is to be trusted.

    CTC: ``config.ctc_loss_reduction`` of ``*ForCTC`` models says it. Others: a forward without ``**kwargs`` must give a
    mean (the Trainer's rule); with them it is a mean when the forward's source computes one without
    ``num_items_in_batch``, as Whisper's does.
    """
    if getattr(trainer, "compute_loss_func", None) or getattr(trainer, "loss_is_scaled_for_ga", None):
        return None
    if not trainer.model_accepts_loss_kwargs:
        return ctc_reduction(trainer) or "mean"
    if _overrides_compute_loss(trainer):
        return None
    if trainer.label_smoother is not None:
        honoured = "num_items_in_batch" in inspect.signature(trainer.label_smoother.__call__).parameters
        return None if honoured else "mean"
    return ctc_reduction(trainer) or ("mean" if _computes_own_mean(_base_model(trainer)) else None)


def _base_model(trainer: Any) -> Any:
    model = trainer.model
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def ctc_reduction(trainer: Any) -> str | None:
    """``config.ctc_loss_reduction`` of a model for CTC, ``"mean"`` or ``"sum"``; None of any other."""
    model = _base_model(trainer)
    reduction = getattr(getattr(model, "config", None), "ctc_loss_reduction", None)
    known = type(model).__name__.endswith("ForCTC") or any(c.__name__.endswith("ForCTC") for c in type(model).__mro__)
    return reduction if known and reduction in ("mean", "sum") else None


def _overrides_compute_loss(trainer: Any) -> bool:
    from transformers import Trainer

    return type(trainer).compute_loss is not Trainer.compute_loss


def _computes_own_mean(model: Any) -> bool:
    try:
        source = inspect.getsource(inspect.unwrap(type(model).forward))
    except (OSError, TypeError):  # no source at hand
        return False
    return any(name in source for name in _OWN_MEANS) and not any(name in source for name in _HONOURS)


def override(owner: Any, name: str, function: Any) -> Callable[[], None]:
    """Put ``function`` in the place of a method of one object; gives the way back."""
    before = owner.__dict__.get(name)
    setattr(owner, name, function)

    def undo() -> None:
        if before is None:
            delattr(owner, name)
        else:
            setattr(owner, name, before)

    return undo


class GradientScale:
    """Weights the losses of one trainer from ``install`` to ``remove``, as far as its Trainer does not."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._kind = loss_kind(trainer)
        self._accepts_loss_kwargs = trainer.model_accepts_loss_kwargs
        self._undo: list[Callable[[], None]] = []
        self._raw: Any = None
        self._wrong = False

    def install(self) -> None:
        """Take effect for the next ``train()``. Nothing changes without accumulation."""
        trainer = self._trainer
        if self._kind is None:
            return
        if self._kind == "mean":
            trainer.model_accepts_loss_kwargs = False  # then the Trainer divides, and reports, rightly
        if trainer.args.gradient_accumulation_steps > 1:
            self._wrong = False
            backward = self._backward(trainer.accelerator.backward)
            self._undo = [
                override(trainer, "compute_loss", self._compute_loss(trainer.compute_loss)),
                override(trainer.accelerator, "backward", backward),
            ]

    def remove(self) -> None:
        """Leave the trainer as it was found, and hold no tensor."""
        self._trainer.model_accepts_loss_kwargs = self._accepts_loss_kwargs
        self._leave()

    def _leave(self) -> None:
        for undo in self._undo:
            undo()
        self._undo, self._raw = [], None

    def _compute_loss(self, original: Any) -> Any:
        def compute_loss(model: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(model, *args, **kwargs)
            if model.training:
                self._raw = result[0] if isinstance(result, tuple) else result
            return result

        return compute_loss

    def _backward(self, original: Any) -> Any:
        def backward(loss: Any, **kwargs: Any) -> Any:
            raw, self._raw = self._raw, None
            if raw is None:
                return original(loss, **kwargs)
            wanted = raw.mean() * self._weight()
            divisor = self._trainer.accelerator.gradient_accumulation_steps
            if not self._wrong:
                self._judge(loss.detach() / divisor, wanted.detach())
            return original(wanted * divisor if self._wrong else loss, **kwargs)

        return backward

    def _weight(self) -> float:
        """The weight of a micro-batch in its accumulation window; the epoch's last one may be shorter."""
        trainer = self._trainer
        if self._kind == "sum":
            return 1.0
        steps = getattr(trainer, "current_gradient_accumulation_steps", trainer.args.gradient_accumulation_steps)
        return 1.0 / float(steps)

    def _judge(self, got: Any, wanted: Any) -> None:
        """Compare what the Trainer is about to do with what is right; a loss of 0 tells nothing."""
        import torch

        if not torch.isfinite(wanted) or wanted == 0:
            return
        self._wrong = not torch.isclose(got.float(), wanted.float(), rtol=1e-2)
        if self._wrong:
            factor = float(got / wanted)
            logger.info("the Trainer would weight each micro-batch's loss %.3g times too much; corrected", factor)
        else:
            self._leave()
