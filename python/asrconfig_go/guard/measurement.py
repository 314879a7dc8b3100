"""Losses computed for measurements: without randomness, and with all state restored."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from .._base.override import override
from .._base.random_state import rng_state, seed_cpu, set_rng_state
from .model_state import Attributes, ModelState, Snapshot


@contextlib.contextmanager
def measuring(trainer: Any, model: Any, state: ModelState) -> Iterator[None]:
    """Evaluation mode; random numbers, modes and what a step changes in trainer and model are put back."""
    random, kept, snapshot = rng_state(), state.save(every=True), Snapshot(trainer)
    undo = override(trainer, "log", lambda *_, **__: None)
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
        undo()
        kept.restore()
        snapshot.restore()
        set_rng_state(random)


@contextlib.contextmanager
def steady(model: Any, attributes: Attributes | None, seed: int = 0) -> Iterator[None]:
    """The same random numbers and attributes each time, and dropout that is alike for all samples of a batch.

    So a loss that compares two forwards of a batch (R-Drop) has something to compare in evaluation mode, too, and
    losses of parts are still those of the whole. Compiled models are left as they are.
    """
    with contextlib.ExitStack() as back:
        if not hasattr(model, "_orig_mod"):
            for module in model.modules():
                if isinstance(module, torch.nn.Dropout) and module.p > 0:
                    back.callback(override(module, "forward", _Wave()))
            back.callback(override(torch.nn.functional, "dropout", _no_dropout))
        seed_cpu(seed)
        if torch.cuda.is_available():
            torch.cuda.manual_seed_all(seed)
        before = {} if attributes is None else attributes.now()
        yield
        if attributes is not None:
            attributes.put(before)


def _no_dropout(x: Any, *_: Any, **__: Any) -> Any:
    return x


class _Wave:
    """In place of a dropout's forward: factors from 0.75 to 1.25 along the features, other ones in each call."""

    def __init__(self) -> None:
        self._calls = 0

    def __call__(self, x: Any) -> Any:
        self._calls += 1
        feature = torch.arange(x.shape[-1], device=x.device)
        return x * (1 + torch.cos(feature + 7.0 * self._calls) / 4).to(x.dtype)
