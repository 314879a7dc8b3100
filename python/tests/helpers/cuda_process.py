"""What all processes of the tests on the stand-in CUDA runtime need (cuda_forked.py)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[2]
_FOLDERS = (REPOSITORY / "python", HERE, REPOSITORY / "build")


@pytest.fixture(autouse=True, scope="session")
def stand_in() -> None:
    """Compiles the stand-in's libraries, so that no test's time limit counts that.

    Tests of the modules that import it are skipped, with the reason, where that cannot be done.
    """
    from cuda_standin import why_not
    from cuda_standin.libraries import built

    if reason := why_not():
        pytest.skip(reason)
    built()


def environment() -> dict[str, str]:
    """The variables of processes that run helpers, without what steers the allocator or hides GPUs."""
    paths = [*map(str, _FOLDERS), *filter(None, [os.environ.get("PYTHONPATH")])]
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        variables.pop(name, None)  # what other tests of this process may have left
    return variables
