"""Saves and restores the global random number generators.

Layer drop, masks of time and the orders of some samplers are drawn from the same generators of the CPU. While nothing
fails the guard draws nothing from them. A step that is computed in several micro-batches draws more than the whole one:
its first micro-batch draws what the whole one would, the others draw from seeds of their own, and the generators are
then left as they were behind the first. What does not depend on a batch's size, as layer drop on a GPU does not, is so
drawn as in a step that was not split. Generators of a GPU, which nothing but the model draws from, are left to run on.
"""

from __future__ import annotations

import contextlib
import ctypes
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch


def seed_of(state: dict[str, Any]) -> int:
    """A number from 0 to 2³¹ − 1 that follows from a state of ``cpu_state``; nothing is drawn from the generators."""
    generator = torch.Generator()
    generator.set_state(state["torch"])
    return int(torch.randint(2**31, (1,), generator=generator))


def seed_cpu(seed: int) -> None:
    """Start the CPU's generators again: Python's, numpy's and torch's."""
    random.seed(seed)
    np.random.seed(seed)
    torch.default_generator.manual_seed(seed)


def cpu_state() -> dict[str, Any]:
    """That of the CPU's generators."""
    return {"python": random.getstate(), "numpy": _numpy(), "torch": torch.get_rng_state()}


class _NumpyState:
    """numpy's state, which it takes 50 µs to give: asked for again only once something was drawn."""

    _BYTES = 624 * 4 + 4  # of a Mersenne twister: its words, and the place among them

    def __init__(self) -> None:
        self._seen = b""
        self._state: Any = None

    def __call__(self) -> Any:
        twister = np.random.mtrand._rand._bit_generator
        if not isinstance(twister, np.random.MT19937):
            return np.random.get_state()
        seen = ctypes.string_at(twister.ctypes.state_address, self._BYTES)
        # A normal number that was drawn in a pair waits outside of the twister, so that one may be drawn unseen.
        if seen != self._seen or self._state[3]:
            self._seen, self._state = seen, np.random.get_state()
        return self._state

    def put(self, state: Any) -> None:
        """Put one back. With the same words, a number may wait in it or not."""
        self._seen = b""
        np.random.set_state(state)


_numpy = _NumpyState()


def set_cpu_state(state: dict[str, Any]) -> None:
    """Put back what ``cpu_state`` gave. The torch seed, which the Trainer's sampler starts from, is part of it."""
    random.setstate(state["python"])
    _numpy.put(state["numpy"])
    torch.set_rng_state(state["torch"])


@contextlib.contextmanager
def cpu_generators_kept() -> Iterator[None]:
    """Put the CPU's generators back, whatever happens in between."""
    state = cpu_state()
    try:
        yield
    finally:
        set_cpu_state(state)


def gpu_states() -> list[torch.Tensor]:
    """Those of the GPUs' generators; none without a GPU that is in use."""
    return torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []


def gpu_states_in_use() -> list[torch.Tensor]:
    """The same where this process uses GPUs already, 16 bytes of each; cheap enough for every step."""
    return [each.get_state() for each in torch.cuda.default_generators] if torch.cuda.is_initialized() else []


def set_gpu_states(states: list[torch.Tensor]) -> None:
    """Put back what ``gpu_states`` gave."""
    if states:
        torch.cuda.set_rng_state_all(states)


def rng_state() -> dict[str, Any]:
    """All the global random number generators: Python, numpy, torch, CUDA."""
    return {**cpu_state(), "cuda": gpu_states()}


def set_rng_state(state: dict[str, Any]) -> None:
    """Put back what ``rng_state`` gave."""
    set_cpu_state(state)
    set_gpu_states(state["cuda"])
