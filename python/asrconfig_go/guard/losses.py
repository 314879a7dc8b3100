"""The loss of each micro-batch, weighted as its share of the optimizer step."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

from .._errors import InvalidArgumentError
from .._override import override
from ..out_of_memory import classify, clear_frames, free_memory
from ..randomness import rng_state, set_rng_state
from .ranks import Ranks
from .split import batch_size, like, piece
from .trim import padding_changes_nothing
from .weights import TRIED, Totals, expected_rules, find_rule, labels_name, totals
from .window import Window


class WeightedLosses:
    """Sees the loss as ``compute_loss`` gives it, and hands ``backward`` the weighted one.

    What the Trainer does to a loss in between, dividing it or not, does not matter then.
    """

    def __init__(self, trainer: Any, rule: str | None, ranks: Ranks) -> None:
        self._trainer, self._ranks = trainer, ranks
        self._labels = labels_name(trainer)
        self.rule = rule
        """What weights go by; None until it is found."""
        self._trims: bool | None = None  # until it is found
        self._factor: float | None = None  # by which the Trainer multiplies losses of several processes
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

    def known_rule(self) -> str:
        """The rule, or the one that is expected while it has not been found."""
        return self.rule or expected_rules(self._trainer)[0]

    def step(self, train_step: Any, window: Totals, model: Any, part: Any, args: Any, kwargs: Any) -> Any:
        """Forward and backward of one micro-batch; its weighted loss."""
        self._follow_accelerator()
        mine, rule = totals(part, self._labels), self.known_rule()
        weight = mine.share(rule, window if window.samples else mine)
        # Gradients of several processes are averaged: a share of all samples counts as often as there are of them.
        self._weight = weight if rule == "sum" else weight * (self._ranks.size / (self._factor or 1.0))
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
                self._raw = self._one_number(result[0] if isinstance(result, tuple) else result)
            return result

        return compute_loss

    def _backing(self, original: Any) -> Any:
        def backward(loss: Any, **kwargs: Any) -> Any:
            if self._weight is None or self._raw is None:
                return original(loss, **kwargs)
            if not self._raw.requires_grad:
                raise InvalidArgumentError(
                    "the loss has no gradient",
                    "unfreeze parameters; do not detach the loss or compute it under no_grad",
                )
            # The accelerator divides by its own accumulation steps.
            return original(self._raw * self._weight * self._trainer.accelerator.gradient_accumulation_steps, **kwargs)

        return backward

    def settle(self, model: Any, inputs: Any, items: Any, window: Window, shared: bool = False) -> None:
        """Find out, on the first batch, what losses are divided by.

        While there is only one sample, or no finite loss, the expected rule goes; and always where forwards are
        ``shared`` by processes, in which all must do the same ones.
        """
        to_be_found = self.rule is None and not shared and not window.of_single_samples
        if to_be_found or self._factor is None:
            with _asking(model):
                self._settle(model, inputs, items, shared)

    def trims(self, model: Any, inputs: Any, items: Any) -> bool:
        """Whether padding may be taken off, found out on the first padded batch that is cut."""
        if self._trims is None:
            with _asking(model):
                self._trims = padding_changes_nothing(
                    model, inputs, lambda batch: self._quiet_loss(model, batch, items), self._exact
                )
        return bool(self._trims)

    def _settle(self, model: Any, inputs: Any, items: Any, shared: bool) -> None:
        """The same in all processes, whichever of them could tell."""
        rule, failed = self.rule, None
        if not rule and not shared:
            try:
                rule = self._find_rule(model, inputs, items)
            except InvalidArgumentError as error:
                failed = error
        factor = self._multiplied(model, inputs, items) if self._factor is None else self._factor
        self.rule, self._factor = self._ranks.agreed(rule, factor)
        if failed is not None:
            raise failed

    def _find_rule(self, model: Any, inputs: Any, items: Any) -> str | None:
        """By the losses of a few samples, and of fewer when these do not fit."""
        most = min(TRIED, batch_size(inputs))
        while most >= 2:
            try:
                some = piece(inputs, 0, most)
                return find_rule(self._trainer, some, lambda b: self._quiet_loss(model, b, items), self._labels)
            except _NotFiniteError:
                return None
            except RuntimeError as error:
                if classify(error)["class"] not in ("gpu_oom", "maybe"):
                    raise
                clear_frames(error)
            most //= 2
            free_memory()
        return None

    def _multiplied(self, model: Any, inputs: Any, items: Any) -> float | None:
        """By what the Trainer multiplies the loss of one of several processes: by their number, or not (1).

        None when the loss does not tell; always as many forwards.
        """
        if self._ranks.alone:
            return 1.0
        some = piece(inputs, 0, 1)
        multiplied = float(self._loss_of(model, some, items))
        with self._ranks.apart():
            bare = float(self._loss_of(model, some, items))
        told = bare != 0.0 and math.isfinite(bare) and math.isfinite(multiplied)
        return float(round(multiplied / bare)) if told else None

    @property
    def _exact(self) -> bool:
        return not (self._trainer.args.fp16 or self._trainer.args.bf16)

    def _quiet_loss(self, model: Any, batch: Any, items: Any) -> Any:
        loss = self._loss_of(model, batch, items)
        if not math.isfinite(float(loss)):
            raise _NotFiniteError
        return loss

    def _loss_of(self, model: Any, batch: Any, items: Any) -> Any:
        import torch

        trainer = self._trainer
        with torch.no_grad(), trainer.compute_loss_context_manager():
            inputs = trainer._prepare_inputs(like(batch, dict(batch)))
            return self._one_number(trainer.compute_loss(model, inputs, num_items_in_batch=items))

    def _one_number(self, loss: Any) -> Any:
        if not hasattr(loss, "backward"):
            raise InvalidArgumentError(
                f"compute_loss gives {type(loss).__name__}, not a tensor", "return the model's loss"
            )
        if self._trainer.args.n_gpu > 1:
            return loss.mean()  # one of each GPU: what the Trainer does with them
        if loss.numel() != 1:
            raise InvalidArgumentError(
                f"compute_loss gives a loss of shape {tuple(loss.shape)}", "return one number: its mean() or its sum()"
            )
        return loss.reshape(())


@contextlib.contextmanager
def _asking(model: Any) -> Iterator[None]:
    """In evaluation mode, with the random numbers put back, and without an answer from losses that are not finite."""
    random, training = rng_state(), model.training
    model.eval()
    try:
        with contextlib.suppress(_NotFiniteError):
            yield
    finally:
        model.train(training)
        set_rng_state(random)


class _NotFiniteError(Exception):
    """A loss that tells nothing."""
