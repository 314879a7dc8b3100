"""The tests of this folder need torch's CUDA build and a C compiler; no GPU."""

from __future__ import annotations

import pytest
from cuda_standin import why_not
from cuda_standin.libraries import built


@pytest.fixture(autouse=True, scope="session")
def stand_in() -> None:
    """Compiles the stand-in's libraries, so that no test's time limit counts that."""
    if reason := why_not():
        pytest.skip(reason)
    built()
