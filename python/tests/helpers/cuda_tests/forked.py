"""Runs functions on the stand-in CUDA runtime, each in a process forked from one that has imported what all need."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import functools
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from cuda_tests.process import environment

_SERVER = Path(__file__).with_name("forks.py")
_MOST_SHOWN = 4000  # characters of what a job printed


@dataclasses.dataclass(frozen=True)
class Job:
    """``module.function(*told)`` after ``cuda_standin.load(**load)``, without any GPU where ``load`` is None.

    ``ends`` is the exit status that is expected.
    """

    function: str
    told: tuple[Any, ...] = ()
    load: dict[str, Any] | None = dataclasses.field(default_factory=dict)
    environment: dict[str, str] = dataclasses.field(default_factory=dict)
    ends: int = 0


def run_on_cuda(
    function: str,
    *given: Any,
    module: str = "cuda_tests.runs",
    imports: Sequence[str] = (),
    timeout: float = 60,
    allocator: str = "",
    **load: Any,
) -> Any:
    """What ``function(*given)`` of a module returns (as JSON has it) after ``cuda_standin.load(**load)``.

    Warnings of torch are errors there. ``imports`` are modules that the function imports itself, imported once for all
    calls. ``allocator`` is PYTORCH_CUDA_ALLOC_CONF.
    """
    variables = {"PYTORCH_CUDA_ALLOC_CONF": allocator} if allocator else {}
    job = Job(f"{module}.{function}", given, load, variables)
    ((found,),) = forked_on_cuda([[job]], timeout, imports)
    return found


def forked_on_cuda(
    groups: Sequence[Sequence[Job]], timeout: float = 120, imports: Sequence[str] = ()
) -> list[list[Any]]:
    """What each job returns (as JSON has it), None where it is expected to be killed.

    The groups run one after the other, the jobs of a group at the same time. ``timeout`` is in seconds, for all.
    """
    modules = {job.function.rpartition(".")[0] for group in groups for job in group}
    with tempfile.TemporaryDirectory() as folder:
        places = [[Path(folder) / f"{i}-{k}" for k in range(len(group))] for i, group in enumerate(groups)]
        with _server().limited(timeout) as server:
            ended = [server.run(*each, [*sorted(modules), *imports]) for each in zip(groups, places, strict=True)]
        return [list(map(_answer, *each)) for each in zip(groups, places, ended, strict=True)]


def _answer(job: Job, place: Path, ended: int) -> Any:
    printed = place.with_suffix(".txt").read_text(encoding="utf-8", errors="replace")
    assert ended == job.ends, f"{job.function} ended with {ended}:\n{printed[-_MOST_SHOWN:]}"
    return json.loads(place.with_suffix(".json").read_text(encoding="utf-8")) if ended == 0 else None


@functools.cache
def _server() -> _Server:
    return _Server()


class _Server:
    """The process of forks.py, for as long as the tests run."""

    def __init__(self) -> None:
        command = [sys.executable, "-W", "error::UserWarning:torch", str(_SERVER)]
        self._process = subprocess.Popen(
            command,
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # so that it can be killed with all that it started
        )
        atexit.register(self._end)

    @contextlib.contextmanager
    def limited(self, seconds: float) -> Iterator[_Server]:
        """Kill it, with what it runs, after ``seconds`` or when anything fails; the next job starts another."""
        timer = threading.Timer(seconds, self._kill)
        timer.start()
        try:
            yield self
        except BaseException:
            _server.cache_clear()
            self._end()
            raise
        finally:
            timer.cancel()

    def run(self, group: Sequence[Job], places: Sequence[Path], imports: Sequence[str]) -> list[int]:
        """The exit statuses of a group's processes."""
        jobs = [dataclasses.asdict(job) for job in group]
        request = {"jobs": jobs, "places": list(map(str, places)), "imports": list(imports)}
        stdin, stdout = self._streams()
        stdin.write(json.dumps(request) + "\n")
        stdin.flush()
        ended = stdout.readline()
        names = ", ".join(job.function for job in group)
        assert ended, f"no answer from the processes of {names}: the time was over, or an import failed"
        return list(json.loads(ended))

    def _streams(self) -> tuple[IO[str], IO[str]]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        return self._process.stdin, self._process.stdout

    def _kill(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)

    def _end(self) -> None:
        self._kill()
        self._process.wait()
        for stream in self._streams():
            with contextlib.suppress(BrokenPipeError):  # of a request that was not taken
                stream.close()
