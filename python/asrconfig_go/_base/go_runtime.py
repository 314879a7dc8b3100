"""Requirements of the Go runtime: enough address space, and threads without signal handlers."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

from .errors import LibraryNotLoadedError

# Measured with Go 1.26, glibc 2.36 and two cores: 1.8 to 1.9 GiB are mapped with about nine threads. None of 20 runs
# failed with 2000 MiB of unmapped addresses, 17 failed with 1600. The share of a thread is a guess that covers both.
_RUNTIME = 1 << 30
_THREAD = 136 << 20


def check_address_space(path: Path) -> None:
    """Raise ``LibraryNotLoadedError`` under a limit (``ulimit -v``) on which the Go runtime would end the process."""
    if sys.platform != "linux":  # others do not enforce the limit
        return
    import resource

    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        return
    try:
        mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except OSError:  # /proc is not mounted
        mapped = 0
    needed = mapped + _RUNTIME + _THREAD * min(64, 4 + 2 * (os.cpu_count() or 1))
    if limit < needed:
        raise LibraryNotLoadedError(
            f"cannot load the native library {path}: the address space of this process is limited to"
            f" {limit >> 20} MiB, and it needs {-(-needed >> 20)} MiB, most of which is reserved and never used",
            f"raise the limit before Python starts: ulimit -v {-(-needed >> 20) * 1024} (or unlimited); to limit"
            " memory, use a control group: systemd-run --user --scope -p MemoryMax=4G",
        )


@contextlib.contextmanager
def signals_blocked() -> Iterator[None]:
    """Block every signal of this thread: threads that start meanwhile, and theirs, never handle one.

    The Go runtime gives its threads the mask of the thread that loads it. They would run handlers that C code installed
    (``faulthandler.register``, profilers) on a stack that is not made for them, and the process would end. The runtime
    itself unblocks what it needs: faults, SIGCHLD, SIGURG and SIGPROF.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
