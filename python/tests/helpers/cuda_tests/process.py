"""What all processes of the tests on the stand-in CUDA runtime need (forked.py)."""

from __future__ import annotations

import os
from importlib import metadata
from pathlib import Path

import pytest

HELPERS = Path(__file__).parents[1]
REPOSITORY = HELPERS.parents[2]
KEPT_WORKSPACES = 22 << 20  # a segment for both threads' of cuBLAS, one for cuBLASLt's
_FOLDERS = (REPOSITORY / "python", HELPERS, REPOSITORY / "build")


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


def torch_version() -> tuple[int, int]:
    """The first two numbers of the installed torch's version, without importing it."""
    major, minor = metadata.version("torch").split(".")[:2]
    return int(major), int(minor)


def kept_workspaces() -> int:
    """Bytes of the workspaces of matrix products that torch before 2.15 keeps: cuBLAS's of two threads, cuBLASLt's."""
    version, cublas, cublas_lt = torch_version(), 2 * 8320 << 10, 1 << 20
    if version >= (2, 15):
        return 0
    return cublas + cublas_lt if (2, 9) <= version < (2, 12) else cublas


def with_kept_workspaces(size: int) -> int:
    """``size`` bytes of a GPU, and what torch before 2.15 reserves for workspaces of matrix products that it keeps."""
    return size if torch_version() >= (2, 15) else size + KEPT_WORKSPACES


def environment() -> dict[str, str]:
    """The variables of processes that run helpers, without what steers the allocator or hides GPUs."""
    paths = [*map(str, _FOLDERS), *filter(None, [os.environ.get("PYTHONPATH")])]
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        variables.pop(name, None)  # what other tests of this process may have left
    return variables
