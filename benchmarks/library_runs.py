"""One small training, with the guard or without."""

from __future__ import annotations

import contextlib
import random
import tempfile
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from guard_runs import listening
from library_memory import Kind, Memory, Run, Shape
from library_state import (
    Walk,
    weights_of,
)
from transformers import TrainerCallback
from transformers.trainer_callback import PrinterCallback

from asrconfig_go.guard import attach


class Follow(TrainerCallback):  # type: ignore[misc]
    """The weights at the beginning and after each optimizer step."""

    def __init__(self, trainer: Any, weights: list[torch.Tensor]) -> None:
        self.trainer, self.weights = trainer, weights

    def on_train_begin(self, *args: Any, optimizer: Any = None, **kwargs: Any) -> None:
        self.weights.append(weights_of(self.trainer, optimizer))

    def on_step_end(self, *args: Any, optimizer: Any = None, **kwargs: Any) -> None:
        self.weights.append(weights_of(self.trainer, optimizer))


@contextlib.contextmanager
def _listening(texts: list[str]) -> Iterator[None]:
    """Collect what the package logs and warns of."""
    with warnings.catch_warnings(record=True) as raised, listening(texts.append):
        warnings.simplefilter("always")
        yield
    texts += [str(warning.message) for warning in raised if "asrconfig_go" in warning.filename]


def trained(kind: Kind, shape: Shape, guarded: bool, memory: Memory) -> Run:
    """Run it. What ends the run is in ``error``."""
    run = Run()
    with tempfile.TemporaryDirectory() as folder, _listening(run.texts):
        torch.manual_seed(0)
        np.random.seed(0)
        random.seed(0)
        trainer = kind.trainer(shape, folder)
        trainer.remove_callback(PrinterCallback)
        follow = Follow(trainer, run.weights)
        trainer.add_callback(follow)
        memory.watch(trainer)
        guard = None
        try:
            if guarded:
                guard = attach(trainer)
            trainer.train()
        except Exception as error:
            run.error = error
        trainer.remove_callback(follow)
        run.state = Walk().trainer(trainer)
    run.log = [dict(entry) for entry in trainer.state.log_history]
    run.arrivals, run.raised = memory.arrivals, memory.raised
    if guard is not None:
        run.texts += [*map(str, guard.events), *guard.notes]
        run.rule = getattr(guard, "unfit", "") or guard.rule or ""
    return run
