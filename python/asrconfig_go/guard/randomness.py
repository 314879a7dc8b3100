"""Random numbers of training steps that do not depend on how often a step is computed, nor in what pieces.

The order of the next epoch is drawn from the same generators that layer drop and time masking draw from. A step that is
computed in more pieces draws more, and all that follows would be another run. So each training step gets a seed of its
own, one number from torch's generator, and leaves the generators of the CPU as they were behind that number. Those of
the GPU, which nothing but the model draws from, are left to run on.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator

import numpy as np
import torch


def draw_seed() -> int:
    """One number, from 0 to 2³¹ − 1."""
    return int(torch.randint(2**31, (1,)))


def seed_cpu(seed: int) -> None:
    """Start the CPU's generators anew: Python's, numpy's and torch's."""
    random.seed(seed)
    np.random.seed(seed)
    torch.default_generator.manual_seed(seed)


@contextlib.contextmanager
def cpu_generators_kept() -> Iterator[None]:
    """Put the CPU's generators back, whatever happens in between."""
    python, numpy, cpu = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        torch.set_rng_state(cpu)


def gpu_states() -> list[torch.Tensor]:
    """Those of the GPUs' generators; none without a GPU that is in use."""
    return torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []


def set_gpu_states(states: list[torch.Tensor]) -> None:
    """Put back what ``gpu_states`` gave."""
    if states:
        torch.cuda.set_rng_state_all(states)
