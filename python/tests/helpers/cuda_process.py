"""Runs a function of cuda_runs.py in a process of its own, on the stand-in CUDA runtime."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[2]
_FOLDERS = (REPOSITORY / "python", HERE, REPOSITORY / "build")
_ANSWER = "answer of the process: "


def run_on_cuda(function: str, *, timeout: float = 60, allocator: str = "", **load: Any) -> Any:
    """What ``cuda_runs.function()`` returns (as JSON has it) after ``cuda_standin.load(**load)``.

    Warnings of torch are errors there. ``allocator`` is PYTORCH_CUDA_ALLOC_CONF.
    """
    paths = [*map(str, _FOLDERS), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    environment.pop("PYTORCH_CUDA_ALLOC_CONF", None)
    if allocator:
        environment["PYTORCH_CUDA_ALLOC_CONF"] = allocator
    command = [sys.executable, "-W", "error::UserWarning:torch", __file__, function, json.dumps(load)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, f"{function} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    answers = [line for line in done.stdout.splitlines() if line.startswith(_ANSWER)]
    return json.loads(answers[-1].removeprefix(_ANSWER))


def _main(function: str, load: str) -> None:
    import cuda_standin

    cuda_standin.load(**json.loads(load))
    import cuda_runs

    answer = getattr(cuda_runs, function)()
    print(_ANSWER + json.dumps(answer), flush=True)


if __name__ == "__main__":
    _main(*sys.argv[1:])
