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
from collections.abc import Callable, Iterator
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


class _Twister:
    """The state of a Mersenne twister, which takes 10 to 50 µs to give: asked for again only once something was drawn.

    That shows in the place among its words, and in any of these: all are others once each was drawn. The place comes
    first or last.
    """

    def __init__(
        self,
        holder: Any,
        name: str,
        address: Callable[[Any], int | None],
        get: Callable[[], Any],
        waits: Callable[[Any], bool],
    ) -> None:
        """The generator ``name`` of ``holder``, and the ``address`` of its words, if it has them.

        ``waits``: whether in a state the second of two normal numbers waits, which is drawn unseen.
        """
        self._holder, self._name, self._address, self._get, self._waits = holder, name, address, get, waits
        self._of: Any = None
        self._words: Any = None
        self.forget()

    def forget(self) -> None:
        """A state was put back: with the same words, a number may wait in it or not."""
        self._first = self._last = -1
        self._state: Any = None

    def __call__(self) -> Any:
        owner, words = getattr(self._holder, self._name), self._words
        if owner is self._of and words is not None and words[0] == self._first and words[624] == self._last:
            return self._state
        return self._newly(owner)

    def _newly(self, owner: Any) -> Any:
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


def _in_python(generator: Any) -> int | None:
    """Behind what every object has; None where that is not so."""
    begin = object.__basicsize__
    if type(generator).__basicsize__ < begin + ctypes.sizeof(_Words):
        return None
    place, *words = _Words.from_address(id(generator) + begin)
    return id(generator) + begin if (*words, place) == random.getstate()[1] else None


def _in_numpy(generator: Any) -> int | None:
    return generator.ctypes.state_address if isinstance(generator, np.random.MT19937) else None


_python = _Twister(random, "_inst", _in_python, random.getstate, lambda state: state[2] is not None)
_numpy = _Twister(
    np.random.mtrand._rand, "_bit_generator", _in_numpy, np.random.get_state, lambda state: bool(state[3])
)


def cpu_state() -> dict[str, Any]:
    """That of the CPU's generators."""
    return {"python": _python(), "numpy": _numpy(), "torch": torch.default_generator.get_state()}


def set_cpu_state(state: dict[str, Any]) -> None:
    """Put back what ``cpu_state`` gave. The torch seed, which the Trainer's sampler starts from, is part of it."""
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])
    _python.forget()
    _numpy.forget()
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
