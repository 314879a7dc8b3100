"""Saves and restores the global random number generators.

Layer drop, time masks and some samplers draw from the CPU's generators. The guard draws nothing from them while nothing
fails. In a step that is split, the first micro-batch draws what the whole batch would, the others use seeds of their
own, and the generators then continue from their state after the first. So draws that do not depend on the batch size
are those of a step that was not split. A GPU's generators, which only the model draws from, are not restored.
"""

from __future__ import annotations

import contextlib
import ctypes
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

RandomState = dict[str, Any]
"""States of generators by their names."""


def seed_of(state: RandomState) -> int:
    """Derive a seed below 2³¹ from a state of ``cpu_state``, without drawing from the generators."""
    generator = torch.Generator()
    generator.set_state(state["torch"])
    return int(torch.randint(2**31, (1,), generator=generator))


def seed_cpu(seed: int) -> None:
    """Seed the CPU's generators: Python's, NumPy's and torch's."""
    random.seed(seed)
    np.random.seed(seed)
    torch.default_generator.manual_seed(seed)


class _Twister:
    """Caches the state of a Mersenne twister, which takes 10 to 50 µs to read, until something is drawn.

    A draw changes the position among its words; once each word was drawn, all words change. The position is stored
    first or last.
    """

    def __init__(
        self,
        holder: object,
        name: str,
        address: Callable[[object], int | None],
        get: Callable[[], Any],
        waits: Callable[[Any], bool],
    ) -> None:
        # ``waits``: whether a state holds the second of two normal numbers, which is drawn without changing the words.
        self._holder, self._name, self._address, self._get, self._waits = holder, name, address, get, waits
        self._of: object = None
        self._words: memoryview | None = None
        self.forget()

    def forget(self) -> None:
        """Drop the cached state, after another one was restored."""
        self._first = self._last = -1
        self._state: Any = None

    def __call__(self) -> Any:
        owner, words = getattr(self._holder, self._name), self._words
        if owner is self._of and words is not None and words[0] == self._first and words[624] == self._last:
            return self._state
        return self._newly(owner)

    def _newly(self, owner: object) -> Any:
        if owner is not self._of:
            address = self._address(owner)
            self._of, self._words = owner, None
            if address is not None:  # read through a view, which is faster than ctypes
                self._words = memoryview(_Words.from_address(address)).cast("B").cast("I")
            self.forget()
        state, words = self._get(), self._words
        if words is not None and not self._waits(state):
            self._first, self._last, self._state = words[0], words[624], state
        return state


_Words = ctypes.c_uint32 * 625  # 624, and the place among them, which comes first or last


def _in_python(generator: object) -> int | None:
    begin = object.__basicsize__
    if type(generator).__basicsize__ < begin + ctypes.sizeof(_Words):
        return None
    place, *words = _Words.from_address(id(generator) + begin)
    return id(generator) + begin if (*words, place) == random.getstate()[1] else None


def _in_numpy(generator: object) -> int | None:
    return generator.ctypes.state_address if isinstance(generator, np.random.MT19937) else None


_python = _Twister(random, "_inst", _in_python, random.getstate, lambda state: state[2] is not None)
_numpy = _Twister(
    np.random.mtrand._rand, "_bit_generator", _in_numpy, np.random.get_state, lambda state: bool(state[3])
)


def cpu_state() -> RandomState:
    """The state of the CPU's generators."""
    return {"python": _python(), "numpy": _numpy(), "torch": torch.default_generator.get_state()}


def set_cpu_state(state: RandomState) -> None:
    """Restore a state of ``cpu_state``, including the torch seed from which the Trainer's sampler starts."""
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])
    _python.forget()
    _numpy.forget()
    torch.set_rng_state(state["torch"])


@contextlib.contextmanager
def cpu_generators_kept() -> Iterator[None]:
    """Restore the CPU's generators at the end of the block."""
    state = cpu_state()
    try:
        yield
    finally:
        set_cpu_state(state)


def gpu_states() -> list[torch.Tensor]:
    """The states of the GPUs' generators; empty without a GPU."""
    return torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []


def gpu_states_in_use() -> list[torch.Tensor]:
    """The same, empty until this process has initialised CUDA: 16 bytes for each GPU, cheap enough for every step."""
    return [g.get_state() for g in torch.cuda.default_generators] if torch.cuda.is_initialized() else []


def set_gpu_states(states: list[torch.Tensor]) -> None:
    """Restore states of ``gpu_states``."""
    if states:
        torch.cuda.set_rng_state_all(states)


def rng_state() -> RandomState:
    """All the global random number generators: Python, numpy, torch, CUDA."""
    return {**cpu_state(), "cuda": gpu_states()}


def set_rng_state(state: RandomState) -> None:
    """Restore a state of ``rng_state``."""
    set_cpu_state(state)
    set_gpu_states(state["cuda"])
