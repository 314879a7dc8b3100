"""The only file that calls ctypes: loads the Go library on first use and turns its answers into values or exceptions.

Loading is put off to the first call because the Go runtime does not survive a fork: a process that imports the package
and forks DataLoader workers before any call is safe, and so is a child that never calls in.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from ..errors import (
    BY_CODE,
    ForkedProcessError,
    InternalError,
    InvalidArgumentError,
    LibraryNotLoadedError,
    PoisonedLibraryError,
    VersionMismatchError,
)
from ._layout import ABI_VERSION, POISONED, Stats, Step
from .checks import plain
from .declared import UNSET_VERSION
from .output import kind_of

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


SOURCE: Final = "git+https://github.com/asrconfig/asrconfig-go"
"""What pip installs before and after a release."""


try:
    from ._version import version as _built_version
except ImportError:  # a checkout whose library was built by hand
    _built_version = ""

_SUFFIX = {"darwin": ".dylib", "win32": ".dll"}.get(sys.platform, ".so")
_lock = threading.Lock()
_library: ctypes.CDLL | None = None
_forked = False


def _mark_forked() -> None:
    """Called in a forked child, where a library that the parent has loaded no longer works."""
    global _forked, _lock
    _lock = threading.Lock()  # another thread of the parent may have held it at the moment of the fork
    _forked = _library is not None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_mark_forked)


def library_path() -> Path:
    """The library that will be loaded: ``ASRCONFIG_LIBRARY`` when set, else the one built into the package."""
    override = os.environ.get("ASRCONFIG_LIBRARY")
    return Path(override) if override else Path(__file__).parents[1] / ("_core" + _SUFFIX)


def _open(path: Path) -> ctypes.CDLL:
    if not path.is_file():
        raise LibraryNotLoadedError(
            f"the native library {path} does not exist",
            f"pip install --force-reinstall {SOURCE}; in a checkout: pip install -e .",
        )
    check_address_space(path)
    try:
        # Lazy binding: the NVIDIA driver's functions are left undefined until a driver is found.
        with signals_blocked():
            library = ctypes.CDLL(str(path), mode=getattr(os, "RTLD_LAZY", 0))
    except OSError as error:
        raise LibraryNotLoadedError(f"cannot load the native library {path}: {error}", _loading_hint()) from error
    _declare(library)
    version = library.ac_abi_version()
    if version != ABI_VERSION:
        raise LibraryNotLoadedError(
            f"{path} has ABI version {version}, this package needs {ABI_VERSION}", "reinstall asrconfig-go"
        )
    _check_version(library.ac_build_info().decode(), path)
    return library


def _loading_hint() -> str:
    if os.environ.get("LD_BIND_NOW"):
        return "unset LD_BIND_NOW: the library needs lazy binding on machines without an NVIDIA driver"
    if _on_musl():
        return (
            "this Python runs on musl (Alpine Linux), where a program cannot load a Go library after it started:"
            " use an image with glibc, python:3.13-slim for example"
        )
    return f"it does not fit this platform: pip install --force-reinstall {SOURCE}; in a checkout: pip install -e ."


def _on_musl() -> bool:
    """Whether the C library is musl: the loader's name is near the start of Python's executable (as in setup.py)."""
    try:
        with Path(sys.executable).open("rb") as file:
            return b"/ld-musl-" in file.read(4096)
    except OSError:
        return False


def _in_checkout() -> bool:
    """Whether this is a source tree, whose halves are built each at its own time."""
    return (Path(__file__).parents[3] / "go.mod").is_file()


def _check_version(info: str, path: Path) -> None:
    """Both halves come from one build: an upgrade under a running kernel, or a file left over, mixes two."""
    version = info.split()[1]
    if _built_version and version not in (_built_version, UNSET_VERSION) and not _in_checkout():
        raise VersionMismatchError(
            f"{path} is of version {version}, this package of {_built_version}",
            "after an upgrade restart the process (in a notebook, the kernel);"
            f" otherwise: pip install --force-reinstall {SOURCE}",
        )


def package_version() -> str:
    """The version of this package: of the build, and in a checkout that was not built, of what is installed."""
    if _built_version:
        return str(_built_version)
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("asrconfig-go")
    except PackageNotFoundError:
        return UNSET_VERSION


def _declare(library: ctypes.CDLL) -> None:
    library.ac_abi_version.restype = ctypes.c_uint32
    library.ac_call.restype = ctypes.c_int32
    answer, size = ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t)
    library.ac_call.argtypes = [ctypes.c_char_p, ctypes.c_size_t, answer, size]
    library.ac_free.restype = None
    library.ac_free.argtypes = [ctypes.c_void_p]
    library.ac_stats_read.restype = ctypes.c_int32
    library.ac_stats_read.argtypes = [ctypes.c_uint64, ctypes.POINTER(Stats), ctypes.c_size_t]
    library.ac_step_put.restype = ctypes.c_int32
    library.ac_step_put.argtypes = [ctypes.c_uint64, ctypes.POINTER(Step), ctypes.c_size_t]
    library.ac_build_info.restype = ctypes.c_char_p


def _load() -> ctypes.CDLL:
    global _library
    if _forked:
        raise ForkedProcessError(
            f"this process (pid {os.getpid()}) was forked after asrconfig_go was used, which it does not survive",
            "call it in the parent process only, or start workers with multiprocessing_context='spawn'",
        )
    if _library is None:
        with _lock:
            if _library is None:
                _library = _open(library_path())
    return _library


def call(op: str, args: Mapping[str, object] | None = None, attached: bytes = b"") -> Any:
    """Run one operation of core/api and return its result (see ``exchange``)."""
    return exchange(op, args, attached)[0]


def exchange(op: str, args: Mapping[str, object] | None = None, attached: bytes = b"") -> tuple[Any, memoryview]:
    """Run one operation of core/api and return its result, and the bytes that come with it.

    ``attached`` are bytes for the operations that take some. Raises the exception that matches the answer's error code,
    and ``InvalidArgumentError`` for NaN and infinity, which JSON cannot express.
    """
    library = _load()
    try:
        request = json.dumps({"v": 1, "op": op, "args": args or {}}, allow_nan=False, default=_plain).encode()
        request += b"\0" + attached if attached else b""
    except ValueError as error:
        raise InvalidArgumentError(f"{op}: the arguments hold a value that is not finite ({error})") from error
    except TypeError as error:
        raise InvalidArgumentError(f"{op}: {error}", "pass numbers and text") from error
    answer, size = ctypes.c_void_p(), ctypes.c_size_t()
    rc = library.ac_call(request, len(request), ctypes.byref(answer), ctypes.byref(size))
    if rc == POISONED:
        raise PoisonedLibraryError(f"{op}: the library panicked earlier", "save your work and restart the process")
    if rc != 0:
        raise InternalError(f"{op}: the library refused the call with code {rc}", "please report this as a defect")
    try:
        raw = ctypes.string_at(answer, size.value)
    finally:
        library.ac_free(answer)
    end = raw.find(b"\0")
    body = json.loads(raw if end < 0 else raw[:end])
    if not body["ok"]:
        error_body = body["error"]
        raise BY_CODE.get(error_body["code"], InternalError)(error_body["message"], error_body["hint"])
    return body["result"], memoryview(raw)[end + 1 if end >= 0 else len(raw) :]


def _plain(value: object) -> Any:
    number = plain(value)
    if number is value:
        raise TypeError(f"{kind_of(value)} is neither a number nor text")
    return number


def struct_call(function: str, monitor: int, struct: ctypes.Structure) -> Callable[[], int]:
    """A function without arguments that hands ``struct`` to one of a monitor's functions; returns 0 or an AC_* code.

    Everything that can be looked up once is: the call itself takes under a microsecond or two.
    """
    call, handle = getattr(_load(), function), ctypes.c_uint64(monitor)
    pointer, size = ctypes.byref(struct), ctypes.sizeof(struct)
    return lambda: call(handle, pointer, size)


def in_forked_child() -> bool:
    """True in a process where the library can no longer be used."""
    return _forked


def build_info() -> str:
    """Version, Go version and platform of the loaded library."""
    return str(_load().ac_build_info().decode())
