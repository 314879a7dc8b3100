"""The loss of each micro-batch, weighted as its share of the optimizer step."""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable, Iterator
from typing import Any

from .._errors import AsrConfigError, InvalidArgumentError
from .._override import override
from ..out_of_memory import classify, clear_frames, first_line, free_memory
from .measurement import measuring, steady
from .own_step import OwnStep, UnfitStepError, check_gradient, has_hooks, has_own_loss, has_own_step
from .probe import steps_in_backward
from .ranks import Ranks
from .split import UncutBatchError, batch_size, check_rows, copied, piece
from .trim import Trimming, padding_changes_nothing
from .weights import (
    RULES,
    TRIED,
    NoRuleError,
    NotFiniteError,
    expected_rules,
    fitting_rules,
    labels_name,
    row_tokens,
    telling_rows,
    totals,
    weighted,
)
from .window import Window

logger = logging.getLogger("asrconfig_go")

_LEAST = 1e-3  # of a loss that is measured again
_LOOKED_AT = 16  # examples of the dataset, at most, for two with different numbers of tokens


class WeightedLosses:
    """Weights the loss that a ``training_step`` hands to ``accelerator.backward``, whatever it is made of.

    Each micro-batch is computed as if it were the whole step (no accumulation), so that nothing divides its loss by the
    accumulation steps but the weight. The rule for the weights is measured on the first batch; where several rules
    give its weights alike, it is asked again for the first window in which they do not.
    """

    def __init__(self, trainer: Any, rule: str | None, ranks: Ranks, window: Window, split: Any = None) -> None:
        self._trainer, self._ranks, self._window, self._split = trainer, ranks, window, split
        self._labels, self._own_step = labels_name(trainer), has_own_step(trainer)
        own_loss, hooks, model = has_own_loss(trainer), has_hooks(trainer.model), type(trainer.model).__name__
        self._own = self._own_step or own_loss or hooks  # then gradients tell, too
        if self._own_step or own_loss:
            self._whose = f"{'training_step' if self._own_step else 'compute_loss'} of {type(trainer).__name__}"
        else:
            self._whose = f"the training of {model}, with hooks of weights," if hooks else f"the training of {model}"
        self._rules: tuple[str, ...] = (rule,) if rule else ()  # that may hold; none before the first is measured
        self._open = rule is None or self._own
        self._given, self._measured = rule is not None, False
        self._tried, self._windows = False, 0
        self._collated: list[Any] = []  # a few examples, or None, once batches of one sample have told nothing
        self._used = False  # a weight other than 1
        self.unfit = ""
        """Why this training's losses cannot be weighted, if they cannot."""
        self.whole = ""
        """Why batches cannot be cut, if they cannot."""
        self._looked_at = 0  # samples, whose forwards were looked at for what they change
        self._trimming = Trimming()
        self._factor: float | None = None  # by which the Trainer multiplies losses of several processes
        self._weight: Any = None  # None outside of a step
        self._arrived = 0
        self._said = False
        self._accelerator: Any = None
        self._undo_backward: Callable[[], None] = lambda: None

    def begin(self) -> None:
        """A training begins: with ``model_init`` of another model."""
        self._window.state.follow(self._trainer.model)
        self._looked_at = 0
        if steps_in_backward(self._trainer.model):
            self.unfit = (
                f"weights of {type(self._trainer.model).__name__} have hooks that run within backward, as optimizers "
                "that step layer by layer put there"
            )

    def epoch_begins(self) -> None:
        """Measure again: own losses and steps may change with the epoch."""
        self._ask_again()

    def _ask_again(self) -> None:
        if self._own_step or not self._given:
            self._open, self._measured, self._window.wanted = True, False, True

    def remove(self) -> None:
        """Leave the accelerator as it was found."""
        self._undo_backward()
        self._accelerator, self._undo_backward = None, lambda: None

    @property
    def own_step(self) -> bool:
        """Whether the Trainer's ``training_step`` is the user's."""
        return self._own_step

    @property
    def rule(self) -> str | None:
        """What weights go by; None until it is measured."""
        return self._rules[0] if self._rules else None

    def known_rule(self) -> str:
        """The rule, or the one that is expected while it has not been measured."""
        return self.rule or expected_rules(self._trainer)[0]

    def step(self, train_step: Any, model: Any, part: Any, args: Any, kwargs: Any, cut: bool) -> Any:
        """Forward and backward of one micro-batch; its weighted loss. ``cut``: it is a part of a collated batch."""
        self._follow_accelerator()
        mine, rule, window = totals(part, self._labels), self.known_rule(), self._window.totals
        weight = mine.share(rule, window if window.samples else mine)
        if cut and rule == "token_mean" and not float(weight):
            return weight  # a mean over no tokens is not a number
        # Gradients of several processes are averaged: a share of all samples counts as often as there are of them.
        self._weight = weight if rule == "sum" else weight * (self._ranks.size / (self._factor or 1.0))
        self._used |= cut or self._window.planned > 1
        self._arrived = 0
        try:
            with self._without_accumulation():
                told = train_step(model, part, *args, **kwargs)
            if not self._arrived and cut:
                raise InvalidArgumentError(
                    f"training_step of {type(self._trainer).__name__} leaves a part of a batch out, by not calling "
                    "accelerator.backward: what it does with the whole batch is not known",
                    "leave clips out of the dataset instead, or train with batches that fit whole",
                )
            told = weighted(told, self._weight)
            return told.reshape(()) if told.numel() == 1 else told.mean()
        finally:
            self._weight = None

    @contextlib.contextmanager
    def _without_accumulation(self) -> Iterator[None]:
        """Inside, the Trainer accumulates one micro-batch: its loss is not divided."""
        trainer, name = self._trainer, "current_gradient_accumulation_steps"
        steps, now = trainer.args.gradient_accumulation_steps, getattr(trainer, name, None)
        trainer.args.gradient_accumulation_steps = 1
        setattr(trainer, name, 1)
        try:
            yield
        finally:
            trainer.args.gradient_accumulation_steps = steps
            if now is None:
                delattr(trainer, name)
            else:
                setattr(trainer, name, now)

    def _follow_accelerator(self) -> None:
        """The Trainer may have made another."""
        accelerator = self._trainer.accelerator
        if accelerator is not self._accelerator:
            self._undo_backward()
            self._accelerator = accelerator
            self._undo_backward = override(accelerator, "backward", self._backing(accelerator.backward))

    def _backing(self, original: Any) -> Any:
        def backward(loss: Any, **kwargs: Any) -> Any:
            if self._weight is None:
                return original(loss, **kwargs)
            self._arrived += 1
            loss = self._one_number(loss)
            check_gradient(loss)
            # The accelerator divides by its own accumulation steps.
            return original(loss * self._weight * self._trainer.accelerator.gradient_accumulation_steps, **kwargs)

        return backward

    def settle(self, train_step: Any, model: Any, args: Any, kwargs: Any, matters: bool, shared: bool = False) -> None:
        """Measure what losses are divided by and what a forward changes, as far as that is not known.

        ``matters``: the window's batch is not computed as a whole. While there is no finite loss, or nothing to measure
        with, the expected rule goes; and always where forwards are ``shared`` by processes, in which all must do the
        same ones.
        """
        inputs = self._window.calls[-1].inputs
        one = batch_size(inputs) == 1 and self._window.planned <= 1
        if not shared and self._looked_at < (1 if one else 2):
            items = items_of(args, kwargs)
            if not self._measure_state(model, inputs, items):
                free_memory()
                self._measure_state(model, inputs, items)
        if matters and len(self._window.calls) == 1:
            self._windows += 1
            if self._windows > 1 and not self._windows & (self._windows - 1):  # the second, fourth, eighth …
                self._ask_again()
        ask = self._open and not shared and (not self._measured or (matters and self._window.uneven))
        if not ask and self._factor is not None:
            return
        fitting = self._measure(train_step, model, args, kwargs) if ask and not self.unfit else None
        if ask and self.unfit:
            fitting = ()
        elif ask and self._own_step and fitting is None and not self._tried:
            self.unfit = f"training_step of {type(self._trainer).__name__} could not be tried on two samples"
            fitting = ()
        factor = self._multiplied(model, inputs, items_of(args, kwargs)) if self._factor is None else self._factor
        known = self._rules or expected_rules(self._trainer)
        left, self._factor = self._ranks.agreed(known, fitting, factor)
        if not ask or left is None:
            self._say_assumed(ask and matters)
            return
        again = self._tried
        self._rules, self._measured, self._tried, self._open = left or known, True, True, len(left) > 1
        self._window.wanted = self._open
        if not left and not self.unfit:
            self.unfit = "another process of this training could not weight its losses"
        if not left and again and not self._own_step:
            # Weights stay what they were: only cutting would change what is computed now.
            self.whole, self.unfit = self.whole or self.unfit, ""
        elif not left and self._used:
            raise InvalidArgumentError(
                f"losses that were weighted so far cannot be weighted any more: {self.unfit}",
                "go on from the last checkpoint without a guard and without accumulation",
            )
        if self._open and matters and self._window.uneven:
            self._say_assumed(True)

    def _say_assumed(self, matters: bool) -> None:
        if matters and not self._said:
            self._said = True
            logger.warning(
                "the guard could not measure what the loss divides by: micro-batches are weighted by %s, as expected "
                "of this model; attach(rule=…) sets mean, token_mean or sum",
                self.known_rule(),
            )

    def _measuring(self, model: Any) -> contextlib.AbstractContextManager[None]:
        return measuring(self._trainer, model, self._window.state)

    def trims(self, model: Any, inputs: Any, items: Any) -> bool:
        """Whether padding may be taken off a batch that is cut."""

        def changes_nothing() -> bool:
            with self._measuring(model):
                return padding_changes_nothing(
                    model, inputs, lambda batch: self._loss_of(model, batch, items), self._exact
                )

        return self._trimming.allowed(inputs, changes_nothing)

    def _measure_state(self, model: Any, inputs: Any, items: Any) -> bool:
        """What forwards of two samples change, in training; whether they fitted. If not, the next step asks again."""
        state, some = self._window.state, self._window.singles(inputs)

        def forward(batch: Any) -> Callable[[], Any]:
            return lambda: self._loss_of(model.train(), batch, items)

        try:
            with self._measuring(model):
                state.measure([forward(batch) for batch in some])
                carries = self._carries(model.train(), some, items)
        except Exception as error:
            if classify(error)["class"] in ("gpu_oom", "maybe"):
                clear_frames(error)
                return False
            if len(some) > 1:
                self.whole = f"{type(model).__name__} fails on one sample of it: {first_line(error)}"
        else:
            if state.varying:
                more = f" and {len(state.varying) - 1} more" if len(state.varying) > 1 else ""
                self.whole = f"{state.varying[0]}{more} of the model depend on which samples a batch holds"
            if carries:
                self.unfit = f"{carries} carries values from one batch to the next"
        self._looked_at = len(some)
        return True

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

    def _measure(self, train_step: Any, model: Any, args: Any, kwargs: Any) -> tuple[str, ...] | None:
        """The rules that fit the first examples that tell; none where no rule does; None where nothing tells."""
        try:
            if self._split is None:
                check_rows(self._window.calls[-1].inputs)
        except UncutBatchError as error:
            self.unfit = f"{error.message}; {error.hint}"
            return ()
        with self._measuring(model):
            for batch in self._examples():
                try:
                    return self._fitting(train_step, model, batch, args, kwargs)
                except NotFiniteError:
                    return None
                except NoRuleError as error:
                    self.unfit = f"{self._whose}: {error.message}"
                    return ()
                except UnfitStepError as error:
                    self.unfit = f"{self._whose} {error}"
                    return ()
                except AsrConfigError:
                    raise
                except Exception as error:
                    if classify(error)["class"] not in ("gpu_oom", "maybe"):
                        self.unfit = f"{self._whose} fails on a part of a batch: {first_line(error)}"
                        return ()
                    clear_frames(error)
                free_memory()
        return None

    def _fitting(self, train_step: Any, model: Any, batch: Any, args: Any, kwargs: Any) -> tuple[str, ...]:
        """By losses; by gradients, too, where a step, a loss or hooks are the user's: they tell more."""
        found = (
            RULES
            if self._own_step
            else self._fitting_modes(
                model, batch, lambda part, seed: self._loss_of(model, part, items_of(args, kwargs), seed)
            )
        )
        # Losses of an untrained model are all alike, so that several rules fit: its gradients are not.
        alike = len(found) == 1 or len(set(row_tokens(batch, self._labels))) < 2
        if alike and not self._own:
            return found

        def run(part: Any) -> None:
            with self._without_accumulation():
                train_step(model, part, *args, **kwargs)

        step = OwnStep(self._trainer, model, self._window.attributes, run, keeps_weights=not self._own_step)
        first = copied(piece(batch, 0, 1))
        step.check_scale(first, step.gradient(copied(first)))
        try:
            by_gradients = self._fitting_modes(model, batch, step.gradient)
        except NoRuleError as error:
            raise UnfitStepError(f"has gradients that no weight mends: {error.message}") from error
        both = tuple(rule for rule in by_gradients if rule in found)
        if not both:
            raise UnfitStepError("has losses and gradients that different weights mend")
        return both

    def _fitting_modes(self, model: Any, batch: Any, measure: Callable[[Any, int], Any]) -> tuple[str, ...]:
        """In evaluation mode, and in training mode, too: some losses have terms that are not there in evaluation."""

        kept = self._window.state.save(every=True)

        def measured(part: Any, seed: int = 0) -> Any:
            kept.restore()
            return measure(part, seed)

        def fitting() -> tuple[str, ...]:
            least = _LEAST if self._tried else 1e-12  # what trained well may be all but nothing
            return fitting_rules(self._trainer, batch, measured, self._labels, self._split, least)

        found = fitting()
        if self.whole:
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
        """Batches that may tell rules apart, then smaller ones where these do not fit."""
        found = self._window.telling()
        if found is None:
            self._collated = self._collated or [self._from_dataset()]
            found = self._collated[0]
        if found is not None and self._split is not None:
            yield found
        elif found is not None:
            most = min(TRIED, batch_size(found))
            while most >= 2:
                yield telling_rows(found, most, self._labels)
                most //= 2

    def _from_dataset(self) -> Any:
        """A few examples, collated as the Trainer does it: batches of one sample tell nothing. None of a stream."""
        loader = self._trainer.callback_handler.train_dataloader
        loader = getattr(loader, "base_dataloader", loader)
        dataset: Any = getattr(loader, "dataset", None)
        if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
            return None
        count = min(_LOOKED_AT, len(dataset))
        try:
            rows = [dataset[i * len(dataset) // count] for i in range(count)]
            return telling_rows(loader.collate_fn(rows), TRIED, self._labels) if count > 1 else None
        except Exception as error:  # whatever a dataset raises: nothing is lost, the expected rule goes
            logger.debug("examples of the dataset could not be collated: %s", first_line(error))
            return None

    def _multiplied(self, model: Any, inputs: Any, items: Any) -> float | None:
        """By what the Trainer multiplies the loss of one of several processes: by their number, or not (1).

        None when the loss does not tell; always as many forwards.
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

    @property
    def _exact(self) -> bool:
        return not (self._trainer.args.fp16 or self._trainer.args.bf16)

    def _loss_of(self, model: Any, batch: Any, items: Any, seed: int = 0, keep: bool = False) -> Any:
        import torch

        trainer = self._trainer
        attributes = None if keep else self._window.attributes
        with torch.no_grad(), steady(model, attributes, seed), trainer.compute_loss_context_manager():
            inputs = trainer._prepare_inputs(copied(batch))
            return self._one_number(trainer.compute_loss(model, inputs, num_items_in_batch=items))

    def _one_number(self, loss: Any) -> Any:
        if isinstance(loss, tuple):
            loss = loss[0]
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


def items_of(args: Any, kwargs: Any) -> Any:
    """What the Trainer gives as ``num_items_in_batch``."""
    return args[0] if args else kwargs.get("num_items_in_batch")
