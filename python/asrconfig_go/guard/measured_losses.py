"""Measures on a few samples what a forward changes, what the loss divides by, and what padding changes."""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable, Iterator
from typing import Any

from .._base.errors import AsrConfigError, InvalidArgumentError
from .._base.out_of_memory import classify, clear_frames, first_line, free_memory
from ..batching.collated_batch import UnsplittableBatchError, batch_size, check_rows, copied, piece
from .accumulation_window import Window
from .custom_step import CustomStep, UnfitStepError, has_custom_loss, has_custom_step, has_hooks
from .loss_weights import (
    RULES,
    TRIED,
    NoRuleError,
    NotFiniteError,
    fitting_rules,
    informative_rows,
    labels_name,
    row_tokens,
)
from .measurement import measuring, steady
from .padding import PaddingCheck, padding_changes_nothing
from .process_group import ProcessGroup

logger: logging.Logger = logging.getLogger("asrconfig_go")

_LEAST = 1e-3  # of a loss that is measured again
_LOOKED_AT = 16  # examples of the dataset, at most, for two with different numbers of tokens
_GOLDEN = 0.618034  # of the dataset lies between two of them, which follows no pattern in its order


class UnfitLossError(Exception):
    """Why the losses of this training cannot be weighted; a whole sentence."""


class MeasuredLosses:
    """Computes losses of a few samples, and their gradients where these are the user's, and leaves no trace."""

    def __init__(self, trainer: Any, ranks: ProcessGroup, window: Window, split: Any = None) -> None:
        self._trainer, self._ranks, self._window, self._split = trainer, ranks, window, split
        self._labels, self.own_step = labels_name(trainer), has_custom_step(trainer)
        own_loss, hooks, model = has_custom_loss(trainer), has_hooks(trainer.model), type(trainer.model).__name__
        self.own = self.own_step or own_loss or hooks
        """Whether step, loss or hooks are the user's: then gradients are measured, too."""
        if self.own_step or own_loss:
            self._whose = f"{'training_step' if self.own_step else 'compute_loss'} of {type(trainer).__name__}"
        else:
            self._whose = f"the training of {model}, with hooks of weights," if hooks else f"the training of {model}"
        self._collated: list[Any] = []  # a few examples, or None, once batches of one sample have told nothing
        self._sought = 0  # times that examples were taken
        self.padding = PaddingCheck()
        """Of which batches padding may be removed."""

    def look_elsewhere(self) -> None:
        """Use other examples of the dataset when the next batches do not show the rule either."""
        self._collated = []

    def padding_is_unseen(self, model: Any, inputs: Any, items: Any) -> bool:
        """Whether padding may be removed from a batch that is split."""

        def changes_nothing() -> bool:
            with self._measuring(model):
                exact = not (self._trainer.args.fp16 or self._trainer.args.bf16)
                return padding_changes_nothing(model, inputs, lambda batch: self._loss_of(model, batch, items), exact)

        return self.padding.allowed(inputs, changes_nothing)

    def changes(self, model: Any, some: list[Any], items: Any) -> tuple[str, str] | None:
        """Why batches cannot be split, and why losses cannot be weighted, by what forwards of ``some`` samples change.

        None where memory does not reach.
        """
        state, whole = self._window.state, ""

        def forward(batch: Any) -> Callable[[], Any]:
            return lambda: self._loss_of(model.train(), batch, items)

        try:
            with self._measuring(model):
                state.measure([forward(batch) for batch in some])
                carries = self._carries(model.train(), some, items)
        except Exception as error:
            if _ran_out(error):
                return None
            return (
                f"{type(model).__name__} fails on one sample of it: {first_line(error)}" if len(some) > 1 else ""
            ), ""
        if state.varying:
            more = f" and {len(state.varying) - 1} more" if len(state.varying) > 1 else ""
            whole = f"{state.varying[0]}{more} of the model depend on which samples a batch holds"
        return whole, f"{carries} carries values from one batch to the next" if carries else ""

    def _carries(self, model: Any, some: list[Any], items: Any) -> str:
        """The attribute by which a batch changes the loss of the next one, if there is one; counts are put back."""
        attributes = self._window.attributes
        before, losses = attributes.now(every=True), []
        for batch in (some[0], some[-1], some[0]):
            attributes.put(before, but_tensors=True)
            losses.append(self._loss_of(model, batch, items, keep=True))
        tensors = [(o, name) for o, name in attributes.changed(before) if hasattr(vars(o).get(name), "shape")]
        if not tensors or float(losses[0]) == float(losses[2]):
            return ""
        return f"{type(tensors[0][0]).__name__}.{tensors[0][1]}"

    def rules(
        self, train_step: Any, model: Any, args: Any, kwargs: Any, *, evaluation_only: bool, again: bool
    ) -> tuple[str, ...] | None:
        """The rules that fit the first examples that show them; None where the batches do not show it.

        ``evaluation_only`` leaves training mode out; ``again`` is whether a rule was found before. Raises
        ``UnfitLossError`` where none fits.
        """
        try:
            if self._split is None:
                check_rows(self._window.calls[-1].inputs)
        except UnsplittableBatchError as error:
            raise UnfitLossError(f"{error.message}; {error.hint}") from error
        with self._measuring(model):
            for batch in self._examples():
                try:
                    return self._fitting(train_step, model, batch, args, kwargs, evaluation_only, again)
                except NotFiniteError:
                    return None
                except NoRuleError as error:
                    raise UnfitLossError(f"{self._whose}: {error.message}") from error
                except UnfitStepError as error:
                    raise UnfitLossError(f"{self._whose} {error}") from error
                except AsrConfigError:
                    raise
                except Exception as error:
                    if not _ran_out(error):
                        raise UnfitLossError(
                            f"{self._whose} fails on a part of a batch: {first_line(error)}"
                        ) from error
                free_memory()
        return None

    def _fitting(
        self, train_step: Any, model: Any, batch: Any, args: Any, kwargs: Any, evaluation_only: bool, again: bool
    ) -> tuple[str, ...]:
        """By losses; also by gradients, which show more, where a step, a loss or hooks are the user's."""
        items = items_of(args, kwargs)

        def fitting(measure: Callable[[Any, int], Any]) -> tuple[str, ...]:
            return self._fitting_modes(model, batch, measure, evaluation_only, _LEAST if again else 1e-12)

        found = RULES if self.own_step else fitting(lambda part, seed: self._loss_of(model, part, items, seed))
        # Losses of an untrained model are all alike, so that several rules fit: its gradients are not.
        alike = len(found) == 1 or len(set(row_tokens(batch, self._labels))) < 2
        if alike and not self.own:
            return found

        def run(part: Any) -> None:
            undo = without_accumulation(self._trainer)
            try:
                train_step(model, part, *args, **kwargs)
            finally:
                undo()

        step = CustomStep(self._trainer, model, self._window.attributes, run, keeps_weights=not self.own_step)
        first = copied(piece(batch, 0, 1))
        step.check_scale(first, step.gradient(copied(first)))
        try:
            by_gradients = fitting(step.gradient)
        except NoRuleError as error:
            raise UnfitStepError(f"has gradients that no weight corrects: {error.message}") from error
        both = tuple(rule for rule in by_gradients if rule in found)
        if not both:
            raise UnfitStepError("has losses and gradients that need different weights")
        return both

    def _fitting_modes(
        self, model: Any, batch: Any, measure: Callable[[Any, int], Any], evaluation_only: bool, least: float
    ) -> tuple[str, ...]:
        """In evaluation mode, and in training mode, too: some losses have terms that are not there in evaluation."""

        kept = self._window.state.save(every=True)

        def measured(part: Any, seed: int = 0) -> Any:
            kept.restore()
            return measure(part, seed)

        def fitting() -> tuple[str, ...]:
            return fitting_rules(self._trainer, batch, measured, self._labels, self._split, least)

        found = fitting()
        if evaluation_only:
            return found
        model.train()
        try:
            in_training = fitting()
            return tuple(rule for rule in found if rule in in_training)
        except NoRuleError:
            if bool((measured(copied(batch)) != measured(copied(batch), 1)).any()):
                return found  # random numbers tell parts from the whole, whatever the loss is
            raise
        finally:
            model.eval()

    def _examples(self) -> Iterator[Any]:
        """Batches that may distinguish rules, then smaller ones where these do not fit."""
        found = self._window.telling()
        if found is None:
            self._collated = self._collated or [self._from_dataset()]
            found = self._collated[0]
        if found is not None and self._split is not None:
            yield found
        elif found is not None:
            most = min(TRIED, batch_size(found))
            while most >= 2:
                yield informative_rows(found, most, self._labels)
                most //= 2

    def _from_dataset(self) -> Any:
        """A few examples, collated as the Trainer does it: batches of one sample are not enough. None of a stream."""
        loader = self._trainer.callback_handler.train_dataloader
        loader = getattr(loader, "base_dataloader", loader)
        dataset: Any = getattr(loader, "dataset", None)
        if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
            return None
        first = _LOOKED_AT * self._sought
        self._sought += 1
        rows = {int(len(dataset) * (i * _GOLDEN % 1)) for i in range(first, first + _LOOKED_AT)}
        try:
            examples = [dataset[i] for i in sorted(rows)]
            return informative_rows(loader.collate_fn(examples), TRIED, self._labels) if len(rows) > 1 else None
        except Exception as error:  # whatever a dataset raises: nothing is lost, the expected rule goes
            logger.debug("examples of the dataset could not be collated: %s", first_line(error))
            return None

    def factor(self, model: Any, inputs: Any, items: Any) -> float | None:
        """By what the Trainer multiplies the loss of one of several processes: by their number, or not (1).

        None when the loss does not show it; always the same number of forwards.
        """
        if self._ranks.alone:
            return 1.0
        some = piece(inputs, 0, 1)
        with self._measuring(model):
            multiplied = float(self._loss_of(model, some, items))
            with self._ranks.apart():
                bare = float(self._loss_of(model, some, items))
        told = bare != 0.0 and math.isfinite(bare) and math.isfinite(multiplied)
        return float(round(multiplied / bare)) if told else None

    def _measuring(self, model: Any) -> contextlib.AbstractContextManager[None]:
        return measuring(self._trainer, model, self._window.state)

    def _loss_of(self, model: Any, batch: Any, items: Any, seed: int = 0, keep: bool = False) -> Any:
        import torch

        trainer = self._trainer
        attributes = None if keep else self._window.attributes
        with torch.no_grad(), steady(model, attributes, seed), trainer.compute_loss_context_manager():
            inputs = trainer._prepare_inputs(copied(batch))
            return one_number(trainer, trainer.compute_loss(model, inputs, num_items_in_batch=items))


def without_accumulation(trainer: Any) -> Callable[[], None]:
    """Let the Trainer accumulate one micro-batch, so that its loss is not divided; gives the way back."""
    name = "current_gradient_accumulation_steps"
    steps, now = trainer.args.gradient_accumulation_steps, getattr(trainer, name, None)
    if steps == now == 1:
        return lambda: None
    trainer.args.gradient_accumulation_steps = 1
    setattr(trainer, name, 1)

    def undo() -> None:
        trainer.args.gradient_accumulation_steps = steps
        if now is None:
            delattr(trainer, name)
        else:
            setattr(trainer, name, now)

    return undo


def one_number(trainer: Any, loss: Any) -> Any:
    """The loss of a step as a tensor without dimensions, whatever form ``compute_loss`` gives it."""
    if isinstance(loss, tuple):
        loss = loss[0]
    if not hasattr(loss, "backward"):
        raise InvalidArgumentError(f"compute_loss gives {type(loss).__name__}, not a tensor", "return the model's loss")
    if loss.numel() != 1:
        if trainer.args.n_gpu > 1:
            return loss.mean()  # one of each GPU: what the Trainer does with them
        raise InvalidArgumentError(
            f"compute_loss gives a loss of shape {tuple(loss.shape)}", "return one number: its mean() or its sum()"
        )
    return loss.reshape(()) if loss.dim() else loss


def items_of(args: Any, kwargs: Any) -> Any:
    """What the Trainer gives as ``num_items_in_batch``."""
    return args[0] if args else kwargs.get("num_items_in_batch")


def _ran_out(error: Exception) -> bool:
    """Whether memory did not reach; then the error holds nothing any more."""
    if classify(error)["class"] not in ("gpu_oom", "maybe"):
        return False
    clear_frames(error)
    return True
