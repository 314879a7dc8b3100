"""The rule by which losses are weighted, and when it is measured."""

from __future__ import annotations

import logging
from typing import Any

from torch.profiler import record_function

from .._base.errors import InvalidArgumentError
from .._base.out_of_memory import free_memory
from ..batching.collated_batch import batch_size
from ..memory.probe import steps_in_backward
from .accumulation_window import Window
from .loss_weights import expected_rules
from .measured_losses import MeasuredLosses, UnfitLossError, items_of
from .padding import LATER
from .process_group import ProcessGroup

logger: logging.Logger = logging.getLogger("asrconfig_go")

_PATIENCE = 3  # measurements that tell nothing, before they become rare
_LEARNT = ("_rules", "_open", "_measured", "_asked_uneven", "_tried", "_missed", "_wait", "unfit", "whole")


class LossRule:
    """What weights go by, measured on the first batch.

    Where several rules give the same weights, it is measured again on the first window in which they differ. As losses
    may change, it is measured again with each epoch and with the second, fourth, eighth … window that depends on it.
    Processes of one training ask at the same steps, and agree.
    """

    def __init__(self, trainer: Any, rule: str | None, ranks: ProcessGroup, window: Window, split: Any = None) -> None:
        self._trainer, self._ranks, self._window = trainer, ranks, window
        self.losses = MeasuredLosses(trainer, ranks, window, split)
        """What measures."""
        self._rules: tuple[str, ...] = (rule,) if rule else ()  # that may hold; none before the first is measured
        self._open = rule is None or self.losses.own
        self._given, self._measured = rule is not None, False
        self._asked_uneven = False  # with a window whose samples have different numbers of tokens
        self._tried, self._windows = False, 0
        self._missed = self._wait = 0  # measurements that told nothing, and steps before the next one
        self._looked_at = 0  # samples whose forwards were looked at for what they change
        self._said = False
        self.used = False
        """Whether a loss was weighted by another weight than 1."""
        self.unfit = ""
        """Why this training's losses cannot be weighted, if they cannot."""
        self.whole = ""
        """Why batches cannot be split, if they cannot."""
        self.factor: float | None = None
        """By what the Trainer multiplies losses of several processes, once that is known."""

    def begin(self) -> None:
        """A training begins: with ``model_init`` of another model."""
        self._window.state.follow(self._trainer.model)
        self._looked_at = 0
        if steps_in_backward(self._trainer.model):
            self.unfit = (
                f"weights of {type(self._trainer.model).__name__} have hooks that run within backward, as optimizers "
                "that step layer by layer put there"
            )

    def learnt(self) -> dict[str, Any]:
        """What has been measured, for another training of the same model; it holds no tensors."""
        return {**{name: getattr(self, name) for name in _LEARNT}, "padding": self.losses.padding.later()}

    def learn(self, learnt: dict[str, Any]) -> None:
        """Begin with what another has ``learnt``, as later in a training, where it is rarely measured again."""
        for name in _LEARNT:
            setattr(self, name, learnt[name])
        self.losses.padding, self._windows = learnt["padding"], LATER

    def ask_again(self) -> None:
        """Measure again: own losses and steps may change."""
        if self._open:
            self.losses.look_elsewhere()
        if self.losses.own_step or not self._given:
            self._open, self._measured, self._window.wanted = True, False, True
            self._asked_uneven = False

    @property
    def name(self) -> str | None:
        """``mean``, ``token_mean`` or ``sum``; None until it is measured."""
        return self._rules[0] if self._rules else None

    def known(self) -> str:
        """The rule, or the one that is expected while it has not been measured."""
        return self.name or expected_rules(self._trainer)[0]

    def settle(self, train_step: Any, model: Any, args: Any, kwargs: Any, matters: bool, shared: bool = False) -> None:
        """Measure what losses are divided by and what a forward changes, as far as that is not known.

        ``matters``: the window's batch is not computed as a whole. While there is no finite loss, or nothing to measure
        with, the expected rule goes; and always where forwards are ``shared`` by processes, in which all must do the
        same ones.
        """
        inputs, items = self._window.calls[-1].inputs, items_of(args, kwargs)
        if not shared:
            self._look_at_changes(model, inputs, items)
        if matters and len(self._window.calls) == 1:
            self._windows += 1
            if self._windows > 1 and not self._windows & (self._windows - 1):  # the second, fourth, eighth …
                self.ask_again()
        ask = not shared and self._asks(matters)
        if not ask and self.factor is not None:
            return
        fitting = self._measure(train_step, model, args, kwargs) if ask else None
        factor = self.losses.factor(model, inputs, items) if self.factor is None else self.factor
        known = self._rules or expected_rules(self._trainer)
        left, self.factor = self._ranks.agreed(known, fitting, factor)
        if ask:
            self._asked_uneven |= self._window.uneven
            self._missed = self._missed + 1 if left is None else 0
            self._wait = 2 ** min(self._missed - _PATIENCE, 10) if self._missed > _PATIENCE else 0
        if ask and left is not None:
            self._take(left, left or known)
        if ask and matters and (left is None or (len(left) > 1 and self._window.uneven)):
            self._say_assumed()

    def _asks(self, matters: bool) -> bool:
        if not self._open or (self._measured and not (matters and self._window.uneven and not self._asked_uneven)):
            return False
        self._wait -= self._wait > 0
        return not self._wait

    def _look_at_changes(self, model: Any, inputs: Any, items: Any) -> None:
        """Of two samples, once there are two; where they do not fit, the next step asks again."""
        one = batch_size(inputs) == 1 and self._window.planned <= 1
        if self._looked_at >= (1 if one else 2):
            return
        some = self._window.singles(inputs)
        found = self.losses.changes(model, some, items)
        if found is None:
            free_memory()
            found = self.losses.changes(model, some, items)
        if found is not None:
            self.whole, unfit = found[0] or self.whole, found[1]
            self.unfit = unfit or self.unfit
            self._looked_at = len(some)

    def _measure(self, train_step: Any, model: Any, args: Any, kwargs: Any) -> tuple[str, ...] | None:
        """The rules that fit, none in an unfit training; None where the batches do not show it."""
        if self.unfit:
            return ()
        options = {"evaluation_only": bool(self.whole), "again": self._tried}
        try:
            with record_function("asrconfig: how losses are averaged"):  # else a profile shows forwards of nobody's
                found = self.losses.rules(train_step, model, args, kwargs, **options)
        except UnfitLossError as error:
            self.unfit = str(error)
            return ()
        if found is None and self.losses.own_step and not self._tried:
            self.unfit = f"training_step of {type(self._trainer).__name__} could not be tried on two samples"
            return ()
        return found

    def _take(self, left: tuple[str, ...], rules: tuple[str, ...]) -> None:
        """What all processes have found: ``rules``, or that none is ``left``."""
        again, self._tried = self._tried, True
        self._rules, self._measured, self._open = rules, True, len(left) > 1
        self._window.wanted = self._open
        if left:
            return
        self.unfit = self.unfit or "another process of this training could not weight its losses"
        if again and not self.losses.own_step:
            # Weights stay what they were: only splitting would change what is computed now.
            self.whole, self.unfit = self.whole or self.unfit, ""
        elif self.used:
            raise InvalidArgumentError(
                f"losses that were weighted so far can no longer be weighted: {self.unfit}",
                "continue from the last checkpoint without a guard and without accumulation",
            )

    def _say_assumed(self) -> None:
        if not self._said:
            self._said = True
            logger.warning(
                "the guard could not measure what the loss divides by: micro-batches are weighted by %s, as expected "
                "of this model; attach(rule=…) sets mean, token_mean or sum",
                self.known(),
            )
