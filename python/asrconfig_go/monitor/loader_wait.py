"""The time that a training waits for its next batches."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from transformers.trainer_callback import TrainerCallback


class LoaderWait(TrainerCallback):  # type: ignore[misc]
    """Measures the time from the end of all else to the begin of a step: the Trainer fetches a step's batches there.

    It is the last of the callbacks, so that what others do after a step, a log or a checkpoint is not taken for the
    loader's time. On a GPU this is what the CPU waits; the GPU may still be busy with the step before.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._since: float | None = None
        self.total = 0.0
        """Seconds since training began."""
        self.last: float | None = None
        """Seconds before the newest step; None where that is not known."""

    def on_epoch_begin(self, *args: Any, **kwargs: Any) -> None:
        """Batches are fetched from now on, as after a step, a log, an evaluation or a checkpoint."""
        self._since = self._clock()

    on_step_end = on_log = on_evaluate = on_save = on_epoch_begin

    def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
        """The batches are there."""
        self.last = None if self._since is None else self._clock() - self._since
        self.total += self.last or 0.0

    def known(self) -> float | None:
        """``total``, for a ``TimeShare``; None before a wait was measured."""
        return None if self.last is None else self.total


def follow_loader(handler: Any) -> tuple[LoaderWait | None, Callable[[], None]]:
    """Add a ``LoaderWait`` to a Trainer's ``CallbackHandler``; returns it and the function that removes it."""
    if handler is None:
        return None, lambda: None
    wait = LoaderWait()
    handler.add_callback(wait)

    def leave() -> None:
        if any(member is wait for member in handler.callbacks):
            handler.callbacks.remove(wait)

    return wait, leave
