"""Loading the library in a process with limits, and signals while it works; each in a process of its own."""

from __future__ import annotations

import sys

import pytest
from conftest import WavMaker

from own_process import run

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.mark.parametrize("mib", [64, 600, 1600])
def test_too_small_an_address_space_is_an_error(mib: int) -> None:
    """The Go runtime ends the process when it cannot reserve its arenas."""
    done = run(
        """
        import resource, sys
        from asrconfig_go._core import native
        from asrconfig_go.errors import LibraryNotLoadedError
        mapped = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (mapped + (int(sys.argv[1]) << 20), resource.RLIM_INFINITY))
        try:
            native.call("library.info")
        except LibraryNotLoadedError as error:
            print(error)
            hint = int(str(error).split("ulimit -v ")[1].split()[0])
            resource.setrlimit(resource.RLIMIT_AS, (hint << 10, resource.RLIM_INFINITY))
            print(len(native.call("library.info")["operations"]) > 0)  # what the hint says is enough
        """,
        f"{mib}",
    )
    assert done.returncode == 0, done.stderr[:2000]
    assert "the address space of this process is limited to" in done.stdout
    assert done.stdout.strip().endswith("True")


def test_no_signal_ends_a_busy_process(make_wav: WavMaker) -> None:
    """A handler of C code, faulthandler's. The kernel gives a signal to any thread, so all get each of them."""
    wav = make_wav("a.wav", 0.5)
    done = run(
        """
        import faulthandler, os, signal, subprocess, sys
        from asrconfig_go import MemoryMonitor
        from asrconfig_go.data.scan import scan_audio

        faulthandler.register(signal.SIGUSR1, file=open(os.devnull, "w"), all_threads=True)
        monitor = MemoryMonitor(interval_ms=1)
        scan_audio([sys.argv[1]], progress=False)
        sender = subprocess.Popen([sys.executable, "-c", sys.argv[2], str(os.getpid())])
        scans = 0
        while sender.poll() is None:
            scan_audio([sys.argv[1]] * 500, progress=False, cache=False)
            scans += 1
        assert sender.wait() == 0
        assert scans > 0 and monitor.read().samples > 0
        monitor.stop()
        print("alive")
        """,
        str(wav),
        """
import ctypes, os, signal, sys, time
pid, libc = int(sys.argv[1]), ctypes.CDLL(None)
tgkill = {"x86_64": 234, "aarch64": 131}[os.uname().machine]
for _ in range(1000):
    os.kill(pid, signal.SIGUSR1)
    for thread in os.listdir(f"/proc/{pid}/task"):
        libc.syscall(tgkill, pid, int(thread), int(signal.SIGUSR1))
    time.sleep(0.002)
""",
    )
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    assert done.stdout.strip() == "alive"


def test_go_threads_take_no_signal() -> None:
    """Threads that Go starts, when loaded and later, have blocked what programs handle; this thread has not."""
    done = run(
        """
        import os, signal
        before = set(os.listdir("/proc/self/task"))
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])
        from asrconfig_go import MemoryMonitor
        with MemoryMonitor(interval_ms=1):
            theirs = set(os.listdir("/proc/self/task")) - before
            assert theirs
            for thread in theirs:
                status = open(f"/proc/self/task/{thread}/status").read()
                blocked = int(status.split("SigBlk:")[1].split()[0], 16)
                for number in ("SIGHUP", "SIGINT", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGTERM", "SIGVTALRM"):
                    assert blocked >> getattr(signal, number) - 1 & 1, (thread, number, hex(blocked))
        assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == mask
        print("fine")
        """
    )
    assert done.stdout.strip() == "fine", done.stderr
