"""The loss of each micro-batch, weighted as its share of the optimizer step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .._base.errors import InvalidArgumentError
from .._base.override import override
from .accumulation_window import Window
from .custom_step import check_gradient
from .loss_rule import LossRule
from .loss_weights import labels_name, totals, weighted
from .measured_losses import one_number, without_accumulation
from .process_group import ProcessGroup


class WeightedLosses:
    """Weights the loss that a ``training_step`` hands to ``accelerator.backward``, whatever it is made of.

    Each micro-batch is computed as if it were the whole step (no accumulation), so that nothing divides its loss by the
    accumulation steps but the weight.
    """

    def __init__(self, trainer: Any, rule: LossRule, ranks: ProcessGroup, window: Window) -> None:
        self._trainer, self._rule, self._ranks, self._window = trainer, rule, ranks, window
        self._labels = labels_name(trainer)
        self._weight: Any = None  # None outside of a step
        self._arrived = 0
        self._accelerator: Any = None
        self._device: Any = None
        self._undo_backward: Callable[[], None] = lambda: None

    def remove(self) -> None:
        """Leave the accelerator as it was found."""
        self._undo_backward()
        self._accelerator, self._undo_backward = None, lambda: None

    def step(self, train_step: Any, model: Any, part: Any, args: Any, kwargs: Any, cut: bool) -> Any:
        """Forward and backward of one micro-batch; its weighted loss. ``cut``: it is a part of a collated batch."""
        self._follow_accelerator()
        rule = self._rule.known()
        weight = self._share(rule, part, cut)
        if cut and rule == "token_mean" and not float(weight):
            return torch.zeros((), device=self._device)  # a mean over no tokens is not a number
        # Gradients of several processes are averaged: a share of all samples counts as often as there are of them.
        self._weight = weight if rule == "sum" else weight * (self._ranks.size / (self._rule.factor or 1.0))
        self._rule.used |= cut or self._window.planned > 1
        self._arrived = 0
        undo = without_accumulation(self._trainer)
        try:
            told = train_step(model, part, *args, **kwargs)
            if not self._arrived and cut:
                raise InvalidArgumentError(
                    f"training_step of {type(self._trainer).__name__} leaves a part of a batch out, by not calling "
                    "accelerator.backward: what it does with the whole batch is not known",
                    "leave clips out of the dataset instead, or train with batches that fit whole",
                )
            told = weighted(told, self._weight)
            told = told if not told.dim() else told.reshape(()) if told.numel() == 1 else told.mean()
            told = told if told.device == self._device else told.to(self._device)
            return told.float() if told.element_size() < 4 else told  # they are added up
        finally:
            self._weight = None
            undo()

    def _share(self, rule: str, part: Any, cut: bool) -> Any:
        """The share of a micro-batch in its optimizer step; 1 of one that is all of it, which needs no counting."""
        window = self._window
        if window.is_one and self._ranks.alone and not cut:
            return 1.0
        mine = totals(part, self._labels)
        return mine.share(rule, window.totals if window.totals.samples else mine)

    def _follow_accelerator(self) -> None:
        """The Trainer may have made another."""
        accelerator = self._trainer.accelerator
        if accelerator is not self._accelerator:
            self._undo_backward()
            self._accelerator, self._device = accelerator, self._trainer.args.device
            self._undo_backward = override(accelerator, "backward", self._backing(accelerator.backward))

    def _backing(self, original: Any) -> Any:
        def backward(loss: Any, **kwargs: Any) -> Any:
            if self._weight is None:
                return original(loss, **kwargs)
            self._arrived += 1
            loss = one_number(self._trainer, loss)
            check_gradient(loss)
            # The accelerator divides by its own accumulation steps.
            for factor in (self._weight, self._trainer.accelerator.gradient_accumulation_steps):
                if isinstance(factor, torch.Tensor) or factor != 1:
                    loss = loss * factor
            return original(loss, **kwargs)

        return backward
