"""Random states: whatever is drawn is drawn again after they were put back."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from asrconfig_go._core.random_state import cpu_state, set_cpu_state


@pytest.mark.parametrize(
    "draw",
    [
        lambda: random.random(),
        lambda: random.gauss(0, 1),  # in pairs: every second one leaves the twister as it is
        lambda: np.random.rand(),
        lambda: np.random.randn(),  # so are these
        lambda: torch.rand(()).item(),
    ],
)
def test_numbers_are_drawn_again(draw: Callable[[], float]) -> None:
    np.random.seed(0)
    before = []
    for _ in range(6):
        before.append((cpu_state(), draw()))
    for state, drawn in reversed(before):
        set_cpu_state(state)
        assert draw() == drawn
    set_cpu_state(before[0][0])
    assert [draw() for _ in before] == [drawn for _, drawn in before]


def test_a_state_that_is_put_back_is_told_with_the_number_that_waits() -> None:
    np.random.seed(0)
    np.random.randn()
    waiting = cpu_state()
    second = np.random.randn()
    cpu_state()  # of the same words, without a number that waits
    set_cpu_state(waiting)
    again = cpu_state()
    np.random.rand()
    set_cpu_state(again)
    assert np.random.randn() == second


def test_states_are_asked_for_again_only_once_something_was_drawn() -> None:
    random.seed(0)
    np.random.seed(0)
    first, second = cpu_state(), cpu_state()
    random.random()
    np.random.rand()
    third = cpu_state()
    random.seed(0)
    np.random.seed(0)
    again = cpu_state()
    for name in ("python", "numpy"):
        assert first[name] is second[name] is not third[name], name
        assert repr(again[name]) == repr(first[name]) != repr(third[name]), name


@pytest.mark.skipif(not hasattr(np.random, "set_bit_generator"), reason="numpy before 1.24")
@pytest.mark.filterwarnings("ignore:get_state and legacy")
def test_another_generator_of_numpy_is_asked_each_time() -> None:
    state_of: Any = np.random
    twister = state_of.get_bit_generator()
    try:
        state_of.set_bit_generator(np.random.PCG64(0))
        state, drawn = cpu_state(), np.random.rand()
        assert cpu_state()["numpy"] is not state["numpy"]
        set_cpu_state(state)
        assert np.random.rand() == drawn
    finally:
        state_of.set_bit_generator(twister)
    assert cpu_state()["numpy"] is cpu_state()["numpy"]
