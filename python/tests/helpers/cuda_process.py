"""Runs a function of cuda_runs.py, or of another module, in a process of its own, on the stand-in CUDA runtime."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[2]
_FOLDERS = (REPOSITORY / "python", HERE, REPOSITORY / "build")
_ANSWER = "answer of the process: "


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


def run_on_cuda(
    function: str, *given: Any, module: str = "cuda_runs", timeout: float = 60, allocator: str = "", **load: Any
) -> Any:
    """What ``function(*given)`` of a module returns (as JSON has it) after ``cuda_standin.load(**load)``.

    Warnings of torch are errors there. ``allocator`` is PYTORCH_CUDA_ALLOC_CONF.
    """
    variables = environment()
    if allocator:
        variables["PYTORCH_CUDA_ALLOC_CONF"] = allocator
    command = [sys.executable, "-W", "error::UserWarning:torch", __file__, module, function, json.dumps([given, load])]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, f"{function} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    answers = [line for line in done.stdout.splitlines() if line.startswith(_ANSWER)]
    return json.loads(answers[-1].removeprefix(_ANSWER))


def _main(module: str, function: str, arguments: str) -> None:
    import cuda_standin

    given, load = json.loads(arguments)
    cuda_standin.load(**load)
    answer = getattr(importlib.import_module(module), function)(*given)
    print(_ANSWER + json.dumps(answer), flush=True)
    # Python 3.11 ends threads that ask for the interpreter while it finalizes; those of autograd and DataParallel
    # then abort the process.
    os._exit(0)


if __name__ == "__main__":
    _main(*sys.argv[1:])
