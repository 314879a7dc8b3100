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


class _CachedTwister:
    """Caches the state of a Mersenne twister, which takes 10 to 50 µs to read, until something is drawn.

    Its memory holds 624 words and the position among them, which Python stores before the words and NumPy behind them.
    A draw changes the position; once every word was drawn, all words change. So the state is the cached one while the
    first and the last of the 625 numbers are unchanged: one is the position, the other a word.

    Args:
        holder: The object with the generator, which may be replaced by another one.
        name: The attribute of ``holder`` that is the generator.
        address: Finds the address of a generator's numbers; None where it is unknown, so that nothing is cached.
        get: Reads the state.
        has_spare: Whether a state holds the second of two normal numbers, which is drawn without changing any word.
    """

    def __init__(
        self,
        holder: object,
        name: str,
        address: Callable[[object], int | None],
        get: Callable[[], Any],
        has_spare: Callable[[Any], bool],
    ) -> None:
        self._holder, self._name, self._address, self._get, self._has_spare = holder, name, address, get, has_spare
        self._generator: object = None
        self._numbers: memoryview | None = None  # of ``_generator``
        self.forget()

    def forget(self) -> None:
        """Drop the cached state, after another one was restored."""
        self._first = self._last = -1
        self._state: Any = None

    def state(self) -> Any:
        """The state of the generator."""
        generator, numbers = getattr(self._holder, self._name), self._numbers
        if (
            generator is self._generator
            and numbers is not None
            and numbers[0] == self._first
            and numbers[624] == self._last
        ):
            return self._state
        return self._read(generator)

    def _read(self, generator: object) -> Any:
        if generator is not self._generator:
            address = self._address(generator)
            self._generator, self._numbers = generator, None
            if address is not None:  # read through a view, which is faster than ctypes
                self._numbers = memoryview(_Numbers.from_address(address)).cast("B").cast("I")
            self.forget()
        state, numbers = self._get(), self._numbers
        if numbers is not None and not self._has_spare(state):
            self._first, self._last, self._state = numbers[0], numbers[624], state
        return state


_Numbers = ctypes.c_uint32 * 625  # the 624 words and the position


def _address_in_python(generator: object) -> int | None:
    """Where CPython is expected to keep the numbers; None where other ones are found there."""
    offset = object.__basicsize__
    if type(generator).__basicsize__ < offset + ctypes.sizeof(_Numbers):
        return None
    position, *words = _Numbers.from_address(id(generator) + offset)
    return id(generator) + offset if (*words, position) == random.getstate()[1] else None


def _address_in_numpy(generator: object) -> int | None:
    return generator.ctypes.state_address if isinstance(generator, np.random.MT19937) else None


_python = _CachedTwister(random, "_inst", _address_in_python, random.getstate, lambda state: state[2] is not None)
_numpy = _CachedTwister(
    np.random.mtrand._rand, "_bit_generator", _address_in_numpy, np.random.get_state, lambda state: bool(state[3])
)


def cpu_state() -> RandomState:
    """The state of the CPU's generators."""
    return {"python": _python.state(), "numpy": _numpy.state(), "torch": torch.default_generator.get_state()}


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
    """The states of the GPUs' generators; empty until this process has initialised CUDA.

    They are 16 bytes for each GPU: cheap enough for every step.
    """
    return [g.get_state() for g in torch.cuda.default_generators] if torch.cuda.is_initialized() else []


def set_gpu_states(states: list[torch.Tensor]) -> None:
    """Restore states of ``gpu_states``."""
    if states:
        torch.cuda.set_rng_state_all(states)


def rng_state() -> RandomState:
    """The states of all global generators: Python's, NumPy's, torch's, and those of the GPUs."""
    return {**cpu_state(), "cuda": gpu_states()}


def set_rng_state(state: RandomState) -> None:
    """Restore a state of ``rng_state``."""
    set_cpu_state(state)
    set_gpu_states(state["cuda"])
