"""Monitors in processes that fork, are spawned, are ended by signals or hold two libraries: none hangs or lives on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from locations import PYTHON

PATIENCE = 60
START = """import sys, os, time, signal
from asrconfig_go import MemoryMonitor
from asrconfig_go.errors import ForkedProcessError
"""


def environment() -> dict[str, str]:
    path = os.pathsep.join(filter(None, [str(PYTHON), os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, "PYTHONPATH": path}


def run(code: str, *options: str, file: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run code in a process of its own, out of a file where other processes must find it."""
    text = START + textwrap.dedent(code)
    source = ["-c", text]
    if file is not None:
        file.write_text(text)
        source = [str(file)]
    # Python 3.12 and newer warn of every fork beside threads.
    command = [sys.executable, "-W", "ignore::DeprecationWarning", *options, *source]
    return subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=PATIENCE, check=False)


def printed(code: str, *options: str, file: Path | None = None) -> str:
    done = run(code, *options, file=file)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


def test_every_use_in_a_forked_child_is_refused_and_none_hangs() -> None:
    out = printed(
        """
        monitor = MemoryMonitor(5)
        child = os.fork()
        if child == 0:
            refused = 0
            uses = (monitor.read, monitor.headroom, monitor.step, monitor.run_log, monitor.alerts, monitor.activity)
            for use in (*uses, lambda: monitor.save("/tmp/x"), lambda: monitor.event("training", "x"), MemoryMonitor):
                try:
                    use()
                except ForkedProcessError:
                    refused += 1
            monitor.stop()  # is the parent's
            print("refused", refused, flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        monitor.step()
        print("running", monitor.running, len(monitor.run_log().steps.number))
        """
    )
    assert out == "refused 9\nrunning True 1"


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_children_with_monitors_of_their_own(tmp_path: Path, method: str) -> None:
    if method == "forkserver" and not hasattr(os, "fork"):
        pytest.skip("forkserver needs fork")
    out = printed(
        f"""
        import multiprocessing

        def sampled(_):
            with MemoryMonitor(5) as own:
                own.step()
                return own.read().samples > 0 and len(own.run_log().steps.number) == 1

        if __name__ == "__main__":
            with MemoryMonitor(5) as monitor, multiprocessing.get_context({method!r}).Pool(2) as pool:
                print(pool.map(sampled, range(3)), monitor.running)
        """,
        file=tmp_path / "children.py",
    )
    assert out == "[True, True, True] True"


@pytest.mark.usefixtures("heard_ctrl_c")
@pytest.mark.parametrize(("name", "status"), [("SIGINT", 1), ("SIGTERM", -signal.SIGTERM)])
def test_signals_end_a_process_with_a_monitor(name: str, status: int) -> None:
    code = START + "monitor = MemoryMonitor(1)\nprint('ready', flush=True)\ntime.sleep(60)\n"
    with subprocess.Popen(
        [sys.executable, "-c", code], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
            started = time.monotonic()
            process.send_signal(getattr(signal, name))
            _, errors = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    assert time.monotonic() - started < 20
    assert ("KeyboardInterrupt" in errors) == (name == "SIGINT"), errors
    assert process.returncode == (-signal.SIGINT if name == "SIGINT" else status)


def test_an_interpreter_that_is_restarted_in_place() -> None:
    """As a notebook's kernel that runs its cells again: a hundred monitors, of which none stays."""
    out = printed(
        """
        from asrconfig_go._core import native
        before = native.call("library.info")["goroutines"]
        for _ in range(100):
            monitor = MemoryMonitor(1)
        monitor.stop()
        deadline = time.monotonic() + 10
        while native.call("library.info")["goroutines"] > before and time.monotonic() < deadline:
            time.sleep(0.05)
        print(native.call("library.info")["goroutines"] - before)
        """
    )
    assert int(out) <= 0
