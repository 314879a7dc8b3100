"""The structures that cross the C boundary lie in memory as the loaded library has them, and mean the same there."""

from __future__ import annotations

import ctypes
import math
from typing import get_args

import pytest

from asrconfig_go._core import _layout, native
from asrconfig_go._core.declared import StepKind
from asrconfig_go.watch import MemoryMonitor

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
        step.allocated = step.reserved = step.peak_allocated = step.peak_reserved = step.largest_free = math.nan
        assert native.step_putter(monitor._handle or 0, step)() == _layout.OK
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
