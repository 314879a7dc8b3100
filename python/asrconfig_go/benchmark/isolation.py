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
    """Restore everything that a training changes in this process."""
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
    """Restore the state, such as precision, that all accelerators of a process share: another Trainer uses it."""
    from accelerate.state import AcceleratorState, GradientState, PartialState

    shared = [kind._shared_state for kind in (AcceleratorState, GradientState, PartialState)]
    before = [dict(state) for state in shared]
    try:
        yield
    finally:
        for state, saved in zip(shared, before, strict=True):
            state.clear()
            state.update(saved)


@contextlib.contextmanager
def off_the_gpu(model: Any) -> Iterator[None]:
    """Move ``model`` to host memory: a copy is trained, and a real training has only one on the GPU."""
    first = next(model.parameters(), None)
    device = None if first is None or not first.is_cuda else first.device
    if device is not None:
        try:
            model.to("cpu")
        except (NotImplementedError, RuntimeError, ValueError):  # quantized models stay where they were loaded
            device = None
        free_memory()
    try:
        yield
    finally:
        if device is not None:
            model.to(device)


@contextlib.contextmanager
def old_objects_aside() -> Iterator[None]:
    """Let the garbage collector leave out what was there before: every block collects, which then takes milliseconds
    instead of up to a second. Where others have put objects aside, that stays as it is.
    """
    frozen = gc.get_freeze_count()
    if not frozen:
        gc.collect()
        gc.freeze()
    try:
        yield
    finally:
        if not frozen:
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
