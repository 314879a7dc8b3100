"""A process that forks others for jobs on the stand-in CUDA runtime; forked.py talks to it.

Importing torch and transformers takes longer than most of what the jobs do, so it is done once, before forking. Each
line of the standard input is a request, a group of jobs that run at the same time; each line of the output says how
the group's processes ended. It ends with its input.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any


def _main() -> None:
    import cuda_standin

    cuda_standin.prepare()
    for line in sys.stdin:
        request = json.loads(line)
        _import(request["imports"])
        children = [_start(job, Path(place)) for job, place in zip(request["jobs"], request["places"], strict=True)]
        ended = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        print(json.dumps(ended), flush=True)
    os._exit(0)


def _import(modules: list[str]) -> None:
    if set(modules) - set(sys.modules):
        for name in modules:
            importlib.import_module(name)
        gc.collect()
        gc.freeze()  # collections then pass over what is imported


def _start(job: dict[str, Any], place: Path) -> int:
    """Fork; in the child do the job, write its answer to ``place`` with ``.json``, what it prints with ``.txt``."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        _redirect(place.with_suffix(".txt"))
        place.with_suffix(".json").write_text(json.dumps(_done(job)), encoding="utf-8")
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        # Python 3.11 ends threads that ask for the interpreter while it finalizes; those of autograd and DataParallel
        # then abort the process.
        os._exit(status)


def _redirect(printed: Path) -> None:
    nothing, file = os.open(os.devnull, os.O_RDONLY), os.open(printed, os.O_WRONLY | os.O_CREAT)
    for target, source in ((0, nothing), (1, file), (2, file)):
        os.dup2(source, target)


def _done(job: dict[str, Any]) -> Any:
    import cuda_standin

    os.environ.update(job["environment"])
    if job["load"] is not None:
        cuda_standin.load(**job["load"])
    module, _, function = job["function"].rpartition(".")
    return getattr(importlib.import_module(module), function)(*job["told"])


if __name__ == "__main__":
    _main()
