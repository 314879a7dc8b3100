"""Trainer callbacks of a guard: begin of the training and of its epochs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from transformers.trainer_callback import TrainerCallback

from .training_report import GuardEvent


class GuardCallback(TrainerCallback):  # type: ignore[misc]
    """Tells a guard what its Trainer does between the steps; by it a guarded Trainer is known among its callbacks."""

    def __init__(
        self,
        training_begins: Callable[[], None],
        epoch_begins: Callable[[], None],
        training_ends: Callable[[], None],
        events: Sequence[GuardEvent],
    ) -> None:
        self._training_begins, self._epoch_begins, self._training_ends = training_begins, epoch_begins, training_ends
        self.events = events
        """What the guard has met so far; grows."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The optimizer and the wrapped model are there now."""
        self._training_begins()

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The order of the epoch is about to be drawn."""
        self._epoch_begins()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The last step is over."""
        self._training_ends()
