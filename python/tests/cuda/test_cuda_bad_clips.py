"""What a guard looks at for bad clips, where it is on a GPU: the real torch.cuda on the stand-in runtime."""

from __future__ import annotations

import pytest

from cuda_tests.forked import run_on_cuda
from cuda_tests.process import stand_in  # noqa: F401


@pytest.mark.slow
def test_gradient_norms_are_copied_to_the_host() -> None:
    found = run_on_cuda("norms_of_a_gpu", module="cuda_tests.bad_clips")
    assert found == {"unusual": [["90.0", "3.0"], ["inf", "nan"]], "pinned": True, "passed": "cuda:0"}
