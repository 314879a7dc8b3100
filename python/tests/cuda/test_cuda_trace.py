"""Traces against torch.cuda on the stand-in runtime, allocation by allocation."""

from __future__ import annotations

import pytest

from cuda_tests.forked import run_on_cuda
from cuda_tests.process import stand_in  # noqa: F401


@pytest.mark.parametrize("gpu", ["T4", "A100"])
def test_trace_has_the_allocations_of_cuda(gpu: str) -> None:
    from cuda_tests.pieces import PIECES, traced

    found = run_on_cuda("allocations_of_pieces", gpu=gpu)
    assert len(found) == {"T4": len(PIECES) - 3, "A100": len(PIECES)}[gpu]
    for name, real in found.items():
        compared = PIECES[name].compared
        assert compared(traced(name, gpu)) == compared([(size, held) for size, held in real]), name
