"""Isolation of a few steps: random numbers, torch's switches, the environment and memory are restored."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
from collections.abc import Iterator
from typing import Any

from .._base.out_of_memory import free_memory
from .._base.random_state import rng_state, set_rng_state
from ..apply.torch_backends import backends_kept


@contextlib.contextmanager
def nothing_left_behind() -> Iterator[None]:
    """Put back what a training changes in this process, whatever happens in between."""
    state, environment = rng_state(), dict(os.environ)
    with backends_kept(), _accelerate_kept(), _quiet():
        try:
            yield
        finally:
            set_rng_state(state)
            for name in set(os.environ) - set(environment):
                del os.environ[name]
            os.environ.update(environment)
            free_memory()


@contextlib.contextmanager
def _accelerate_kept() -> Iterator[None]:
    """What all accelerators of a process share, its precision among it: a Trainer that is there already uses it."""
    from accelerate.state import AcceleratorState, GradientState, PartialState

    shared = [kind._shared_state for kind in (AcceleratorState, GradientState, PartialState)]
    before = [dict(each) for each in shared]
    try:
        yield
    finally:
        for each, kept in zip(shared, before, strict=True):
            each.clear()
            each.update(kept)


@contextlib.contextmanager
def off_the_gpu(model: Any) -> Iterator[None]:
    """Hold ``model`` in host memory: what is trained is a copy of it, and two would not be there in a real training."""
    first = next(model.parameters(), None)
    device = None if first is None or not first.is_cuda else first.device
    if device is None:
        yield
        return
    try:
        model.to("cpu")
    except (NotImplementedError, RuntimeError, ValueError):  # quantized models stay where they were loaded
        yield
        return
    free_memory()
    try:
        yield
    finally:
        model.to(device)


@contextlib.contextmanager
def old_objects_aside() -> Iterator[None]:
    """Let the garbage collector leave out what was there before: every block collects, which then takes milliseconds
    instead of up to a second. Where others have put objects aside, that stays as it is.
    """
    if gc.get_freeze_count():
        yield
        return
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Mute what transformers and the guard print at the begin of each of dozens of trainings."""
    loggers = [logging.getLogger(name) for name in ("transformers", "asrconfig_go", "accelerate")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
