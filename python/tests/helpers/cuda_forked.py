"""Runs functions on the stand-in CUDA runtime, each in a process forked from one that has imported what all need.

Importing takes most of the time of a short training. ``python cuda_forked.py FOLDER`` reads the groups from its
standard input.
"""

from __future__ import annotations

import dataclasses
import gc
import importlib
import json
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cuda_process import environment

MODULES = ("cuda_plans", "cuda_tools", "cuda_several")


@dataclasses.dataclass(frozen=True)
class Job:
    """``module.function(*told)`` after ``cuda_standin.load(**load)``; ``ends`` is the exit status that is expected."""

    function: str
    told: tuple[Any, ...] = ()
    load: dict[str, Any] = dataclasses.field(default_factory=dict)
    environment: dict[str, str] = dataclasses.field(default_factory=dict)
    ends: int = 0


def forked_on_cuda(groups: Sequence[Sequence[Job]], timeout: float = 120) -> list[list[Any]]:
    """What each job returns (as JSON has it), None where it is expected to be killed.

    The groups run one after the other, the jobs of a group at the same time.
    """
    told = json.dumps([[dataclasses.asdict(job) for job in group] for group in groups])
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-W", "error::UserWarning:torch", __file__, folder]
        done = subprocess.run(command, env=environment(), input=told, capture_output=True, text=True, timeout=timeout)
        assert done.returncode == 0, f"{done.stdout}{done.stderr}"
        return [
            [_answer(Path(folder) / f"{i}-{k}.json", job) for k, job in enumerate(group)]
            for i, group in enumerate(groups)
        ]


def _answer(file: Path, job: Job) -> Any:
    return json.loads(file.read_text(encoding="utf-8")) if job.ends == 0 else None


def _main(folder: str) -> None:
    import cuda_standin

    cuda_standin.prepare()
    known = {name: importlib.import_module(name) for name in MODULES}
    gc.freeze()  # collections then pass over what is imported
    status = 0
    for i, group in enumerate(json.load(sys.stdin)):
        jobs = [Job(**described) for described in group]
        children = [_start(job, known, Path(folder) / f"{i}-{k}.json") for k, job in enumerate(jobs)]
        for job, child in zip(jobs, children, strict=True):
            ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            if ended != job.ends:
                print(f"{job.function} ended with {ended}", flush=True)
                status = 1
    os._exit(status)


def _start(job: Job, known: dict[str, Any], file: Path) -> int:
    """Fork; in the child do the job and end, as cuda_process.py does."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        import cuda_standin

        os.environ.update(job.environment)
        cuda_standin.load(**job.load)
        module, _, function = job.function.partition(".")
        file.write_text(json.dumps(getattr(known[module], function)(*job.told)), encoding="utf-8")
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    _main(sys.argv[1])
