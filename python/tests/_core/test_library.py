"""The C boundary from Python: lazy loading, forks, panics, a driver-less machine, and structures in memory."""

from __future__ import annotations

import ctypes
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from asrconfig_go._core import _layout, native
from asrconfig_go._core.declared import StepKind
from asrconfig_go.watch import MemoryMonitor
from locations import REPOSITORY
from own_process import run


def test_import_loads_neither_library_nor_torch() -> None:
    done = run("""
        import sys, asrconfig_go
        from asrconfig_go._core import native
        assert native._library is None
        assert not {"torch", "transformers", "numpy", "datasets", "tqdm"} & sys.modules.keys(), sys.modules.keys()
        print("fine")
    """)
    assert done.stdout.strip() == "fine", done.stderr


def test_call_after_fork_raises_at_once() -> None:
    done = run("""
        import os
        from asrconfig_go._core import native
        from asrconfig_go.errors import ForkedProcessError
        native.call("library.info")
        child = os.fork()
        if child == 0:
            try:
                native.call("library.info")
            except ForkedProcessError as error:
                print("refused:", error, flush=True)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert native.call("library.info")["operations"]
    """)
    assert done.returncode == 0, done.stderr
    assert "refused: this process (pid" in done.stdout


def test_load_after_fork_works() -> None:
    done = run("""
        import os, asrconfig_go
        from asrconfig_go._core import native
        child = os.fork()
        if child == 0:
            native.call("hardware.detect", {})
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        native.call("library.info")
    """)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("preset", [{}, {"LD_BIND_NOW": "1"}])
def test_machine_without_driver(preset: dict[str, str]) -> None:
    """The driver's functions are undefined symbols: lazy binding loads, immediate binding gives one clear error."""
    if os.environ.get("LD_BIND_NOW"):
        pytest.skip("LD_BIND_NOW is set for the whole test run")
    done = run("from asrconfig_go.predict import HardwareProfile; print(HardwareProfile.detect())", **preset)
    if preset:
        assert "LibraryNotLoadedError" in done.stderr
        assert "unset LD_BIND_NOW" in done.stderr
    else:
        assert "RAM" in done.stdout, done.stderr


def test_missing_library_says_what_to_do() -> None:
    code = "from asrconfig_go._core import native; native.call('library.info')"
    done = run(code, ASRCONFIG_LIBRARY="/nowhere/_core.so")
    assert "/nowhere/_core.so does not exist" in done.stderr
    assert "pip install" in done.stderr


MIXED = "from asrconfig_go._core import native; native._built_version = '9.8.7'; native._in_checkout = lambda: False; "


def test_halves_of_two_versions_are_refused() -> None:
    """As after an upgrade under a running kernel."""
    done = run(MIXED + "native.call('library.info')")
    assert "VersionMismatchError" in done.stderr
    assert "this package of 9.8.7" in done.stderr
    assert "restart the process" in done.stderr


def test_musl_is_named_when_the_library_cannot_be_loaded(tmp_path: Path) -> None:
    musl = tmp_path / "python"
    musl.write_bytes(b"\x7fELF" + bytes(600) + b"/lib/ld-musl-x86_64.so.1\0")
    (tmp_path / "_core.so").write_bytes(b"no library")
    code = "import sys; sys.executable = {!r}; from asrconfig_go._core import native; native.call('library.info')"
    on_musl = run(code.format(str(musl)), ASRCONFIG_LIBRARY=str(tmp_path / "_core.so"))
    elsewhere = run(code.format(sys.executable), ASRCONFIG_LIBRARY=str(tmp_path / "_core.so"))
    assert "LibraryNotLoadedError" in on_musl.stderr
    assert "Alpine" in on_musl.stderr
    assert "python:3.13-slim" in on_musl.stderr
    assert "Alpine" not in elsewhere.stderr
    assert "does not fit this platform" in elsewhere.stderr


@pytest.fixture(scope="session")
def panicking_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("go") is None:
        pytest.skip("building the panicking library needs Go")
    output = tmp_path_factory.mktemp("panicking") / "_core.so"
    command = ["go", "build", "-buildmode=c-shared", "-tags", "panicking", "-ldflags", "-extldflags=-Wl,-z,lazy"]
    subprocess.run([*command, "-o", str(output), "./capi"], check=True, cwd=REPOSITORY, timeout=600)
    return output


@pytest.mark.slow
@pytest.mark.parametrize("op", ["test.panic", "test.panic_goroutine"])
def test_panic_poisons_but_does_not_kill(panicking_library: Path, op: str) -> None:
    done = run(
        f"""
        from asrconfig_go._core import native
        from asrconfig_go.errors import PoisonedLibraryError
        for op in ({op!r}, "library.info"):
            try:
                native.call(op)
                print("answered")
            except PoisonedLibraryError as error:
                print("poisoned" if "on request" in str(error) else error)
        stats = native.Stats()
        print(native.struct_call("ac_stats_read", 1, stats)())
        """,
        ASRCONFIG_LIBRARY=str(panicking_library),
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["poisoned", "poisoned", "3"]


def test_build_info_names_version_and_platform() -> None:
    assert native.build_info().startswith("asrconfig-go ")
    assert "go1." in native.build_info()


def test_not_a_number_never_reaches_the_library() -> None:
    with pytest.raises(ValueError, match="not finite"):
        native.call("plan.check", {"safety_margin": float("nan")})


STRUCTURES = {"ac_gpu_stats": _layout.GPUStats, "ac_stats": _layout.Stats, "ac_step": _layout.Step}
IN_CTYPES = {
    "uint64_t": ctypes.c_uint64,
    "int64_t": ctypes.c_int64,
    "intptr_t": ctypes.c_ssize_t,
    "double": ctypes.c_double,
    "bool": ctypes.c_bool,
    **STRUCTURES,
}


@pytest.mark.parametrize("name", STRUCTURES)
def test_each_field_lies_where_the_library_has_it(name: str) -> None:
    fields, structure = native.call("library.info")["structures"][name], STRUCTURES[name]
    assert [field["name"] for field in fields] == [declared[0] for declared in structure._fields_]
    for field, declared in zip(fields, structure._fields_, strict=True):
        here, kind = getattr(structure, field["name"]), declared[1]
        assert (here.offset, here.size) == (field["offset"], field["size"]), field
        element = IN_CTYPES[field["type"]]
        assert kind is (element * field["count"] if field["count"] else element), field
    last = max(field["offset"] + field["size"] for field in fields)
    assert 0 <= ctypes.sizeof(structure) - last < 8


def test_the_library_has_no_other_structure_and_the_same_version() -> None:
    assert native.call("library.info")["structures"].keys() == STRUCTURES.keys()
    assert native._load().ac_abi_version() == _layout.ABI_VERSION
    assert get_args(StepKind) == _layout.STEP_KINDS


def test_a_step_arrives_field_by_field() -> None:
    seconds = {
        "spent_s": 1.5,
        "waited_s": 0.25,
        "audio_s": 30.0,
        "padded_s": 40.0,
        "longest_s": 12.0,
        "arithmetic_s": 0.5,
    }
    with MemoryMonitor(5) as monitor:
        step = _layout.Step(number=7, kind=_layout.STEP_KINDS.index("evaluation"), gpu=-1, **seconds)
        step.allocated = step.reserved = step.peak_allocated = step.peak_reserved = math.nan
        assert native.struct_call("ac_step_put", monitor._handle or 0, step)() == _layout.OK
        steps = monitor._ask("monitor.run_log")["steps"]
    assert (steps["number"], steps["kind"], steps["gpu"]) == ([7], ["evaluation"], [-1])
    assert {name: steps[name] for name in seconds} == {name: [value] for name, value in seconds.items()}


def test_the_size_of_a_structure_is_checked() -> None:
    library, stats, step = native._load(), _layout.Stats(), _layout.Step()
    for size in (0, 8, ctypes.sizeof(stats) - 8, ctypes.sizeof(stats) + 8):
        assert library.ac_stats_read(1, stats, size) == _layout.BAD_CALL
    assert library.ac_step_put(1, step, ctypes.sizeof(step) + 8) == _layout.BAD_CALL
    assert library.ac_stats_read(2**63, stats, ctypes.sizeof(stats)) == _layout.NO_MONITOR
    assert library.ac_step_put(2**63, step, ctypes.sizeof(step)) == _layout.NO_MONITOR
