"""Monitors in processes that fork, are spawned, are ended by signals or hold two libraries: none hangs or lives on."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from asrconfig_go._base import native
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
    what = ["-c", text]
    if file is not None:
        file.write_text(text)
        what = [str(file)]
    # Python 3.12 and newer warn of every fork beside threads.
    command = [sys.executable, "-W", "ignore::DeprecationWarning", *options, *what]
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


def test_a_process_that_becomes_another_program() -> None:
    out = printed(
        """
        monitor = MemoryMonitor(1)
        sys.stdout.flush()
        again = "from asrconfig_go import MemoryMonitor; m = MemoryMonitor(1); print(m.read().samples > 0)"
        os.execv(sys.executable, [sys.executable, "-c", again])
        """
    )
    assert out == "True"


def test_two_monitors_know_nothing_of_each_other() -> None:
    out = printed(
        """
        with MemoryMonitor(5) as one, MemoryMonitor(50) as two:
            one.step(); one.step(); two.step()
            one.stop()
            print(len(one.run_log().steps.number), len(two.run_log().steps.number), one.running, two.running)
            before = two.read().samples
            time.sleep(0.3)
            print(two.read().samples > before)
        """
    )
    assert out == "2 1 False True\nTrue"


def test_two_copies_of_the_library_in_one_process(tmp_path: Path) -> None:
    copy = shutil.copy(native.library_path(), tmp_path / "other.so")
    out = printed(
        f"""
        monitor = MemoryMonitor(5)
        mine = {{name: sys.modules.pop(name) for name in list(sys.modules) if name.startswith("asrconfig_go")}}
        os.environ["ASRCONFIG_LIBRARY"] = {str(copy)!r}
        import asrconfig_go
        second = asrconfig_go.MemoryMonitor(5)
        second.step()
        monitor.step(); monitor.step()
        print(len(monitor.run_log().steps.number), len(second.run_log().steps.number))
        second.stop()
        print(monitor.running, monitor.read().samples > 0, second.run_log().samples > 0)
        assert sys.modules["asrconfig_go._base.native"]._library is not mine["asrconfig_go._base.native"]._library
        """
    )
    assert out == "2 1\nTrue True True"


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


def test_a_handler_of_the_user_s_still_runs() -> None:
    out = printed(
        """
        def told(number, frame):
            monitor.event("training", "stopped")
            monitor.stop()
            print([event.text for event in monitor.run_log().events])
            raise SystemExit(0)
        signal.signal(signal.SIGTERM, told)
        monitor = MemoryMonitor(1)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(30)
        """
    )
    assert out == "['stopped']"


@pytest.mark.parametrize("when", ["before", "after"])
def test_faulthandler(when: str) -> None:
    """A crash still ends the process with Python's own report, whichever came first."""
    done = run(
        f"""
        import ctypes, faulthandler
        if {when!r} == "before":
            faulthandler.enable()
        monitor = MemoryMonitor(1)
        if {when!r} == "after":
            faulthandler.enable()
        time.sleep(0.05)
        assert monitor.read().samples > 0
        ctypes.string_at(0)
        """
    )
    assert done.returncode < 0 or done.returncode == 2  # by the signal, or by the Go runtime that passed it on
    assert "Segmentation fault" in done.stderr or "SIGSEGV" in done.stderr
    assert "string_at" in done.stderr or "goroutine" in done.stderr


@pytest.mark.parametrize("when", ["before", "after"])
def test_what_runs_at_the_end_may_still_ask(when: str) -> None:
    out = printed(
        f"""
        import atexit
        def last():
            try:
                print("samples", monitor.read().samples > 0)
            except Exception as error:
                print(type(error).__name__)
        if {when!r} == "before":
            atexit.register(last)
        monitor = MemoryMonitor(1)
        monitor.read()
        if {when!r} == "after":
            atexit.register(last)
        """
    )
    # What was registered later runs earlier: "before" asks a closed monitor, which gives the last sample that it read.
    assert out == "samples True"


def test_daemon_threads_that_never_end() -> None:
    out = printed(
        """
        import threading
        monitor = MemoryMonitor(1)
        def forever():
            while True:
                monitor.read(); monitor.step()
        for _ in range(3):
            threading.Thread(target=forever, daemon=True).start()
        time.sleep(0.3)
        print("ends")
        """
    )
    assert out == "ends"


def test_a_monitor_keeps_no_process_alive() -> None:
    started = time.monotonic()
    assert printed("monitors = [MemoryMonitor(60_000), MemoryMonitor(1)]") == ""
    assert time.monotonic() - started < 20


def test_an_interpreter_that_is_restarted_in_place() -> None:
    """As a notebook's kernel that runs its cells again: a hundred monitors, of which none stays."""
    out = printed(
        """
        from asrconfig_go._base import native
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
    assert out == "0"
