"""The loss of each micro-batch, weighted as its share of the optimizer step."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from .._errors import InvalidArgumentError
from ..gradient_scale import override
from ..randomness import rng_state, set_rng_state
from .split import batch_size, like
from .weights import Totals, expected_rules, find_rule, labels_name, totals


class WeightedLosses:
    """Sees the loss as ``compute_loss`` gives it, and hands ``backward`` the weighted one.

    What the Trainer does to a loss in between, dividing it or not, does not matter then.
    """

    def __init__(self, trainer: Any, rule: str | None) -> None:
        self._trainer = trainer
        self._labels = labels_name(trainer)
        self.rule = rule
        self._raw: Any = None
        self._weight: Any = None  # None outside of a step
        self._accelerator: Any = None
        self._undo_backward: Callable[[], None] = lambda: None

    def install(self) -> Callable[[], None]:
        """Take effect; gives the way back."""
        undo = override(self._trainer, "compute_loss", self._computing(self._trainer.compute_loss))

        def remove() -> None:
            undo()
            self._undo_backward()
            self._accelerator, self._undo_backward = None, lambda: None

        return remove

    def step(self, train_step: Any, window: Totals, model: Any, part: Any, args: Any, kwargs: Any) -> Any:
        """Forward and backward of one micro-batch; its weighted loss."""
        self._follow_accelerator()
        mine = totals(part, self._labels)
        rule = self.rule or self._find_rule(model, part, args, kwargs)
        self._weight = mine.share(rule, window if window.samples else mine)
        try:
            train_step(model, part, *args, **kwargs)
            if self._raw is None:
                raise InvalidArgumentError(
                    f"training_step of {type(self._trainer).__name__} does not call compute_loss",
                    "its losses cannot be weighted: do not attach a guard to it",
                )
            return self._raw.detach() * self._weight
        finally:
            self._raw = self._weight = None

    def _follow_accelerator(self) -> None:
        """The Trainer may have made another."""
        accelerator = self._trainer.accelerator
        if accelerator is not self._accelerator:
            self._undo_backward()
            self._accelerator = accelerator
            self._undo_backward = override(accelerator, "backward", self._backing(accelerator.backward))

    def _computing(self, original: Any) -> Any:
        def compute_loss(model: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(model, *args, **kwargs)
            if self._weight is not None:
                self._raw = result[0] if isinstance(result, tuple) else result
            return result

        return compute_loss

    def _backing(self, original: Any) -> Any:
        def backward(loss: Any, **kwargs: Any) -> Any:
            if self._weight is None or self._raw is None:
                return original(loss, **kwargs)
            # The accelerator divides by its own accumulation steps.
            return original(self._raw * self._weight * self._trainer.accelerator.gradient_accumulation_steps, **kwargs)

        return backward

    def _find_rule(self, model: Any, part: Any, args: Any, kwargs: Any) -> str:
        """By the losses of a few samples; the expected one while there is only one sample, or no finite loss."""
        expected = expected_rules(self._trainer)[0]
        if batch_size(part) < 2:
            return expected
        items = args[0] if args else kwargs.get("num_items_in_batch")
        random, training = rng_state(), model.training
        try:
            model.eval()
            found = find_rule(self._trainer, part, lambda batch: self._quiet_loss(model, batch, items), self._labels)
        except _NotFiniteError:
            return expected
        finally:
            model.train(training)
            set_rng_state(random)
        self.rule = found
        return found

    def _quiet_loss(self, model: Any, batch: Any, items: Any) -> Any:
        import torch

        trainer = self._trainer
        with torch.no_grad(), trainer.compute_loss_context_manager():
            inputs = trainer._prepare_inputs(like(batch, dict(batch)))
            loss = trainer.compute_loss(model, inputs, num_items_in_batch=items)
        if not math.isfinite(float(loss)):
            raise _NotFiniteError
        return loss


class _NotFiniteError(Exception):
    """A loss that tells nothing."""
