"""Random states: whatever is drawn is drawn again after they were put back."""

import random
from collections.abc import Callable

import numpy as np
import pytest
import torch

from asrconfig_go._base.random_state import cpu_state, set_cpu_state


@pytest.mark.parametrize(
    "draw",
    [
        lambda: random.random(),
        lambda: np.random.rand(),
        lambda: np.random.randn(),  # in pairs: every second one leaves the twister as it is
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
